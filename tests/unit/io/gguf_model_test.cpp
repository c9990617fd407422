// GGUF files as models: they describe the same model as their original Hugging Face folder.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_file.hpp"
#include "support/gguf_builder.hpp"
#include "support/gguf_model.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

/// [out, in], stored in either order.
std::vector<float> values_of(const Checkpoint& checkpoint, const TensorName& name) {
  const Tensor& tensor = checkpoint.tensor(name.name, name.shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  if (!name.transposed) return values;
  std::vector<float> turned(values.size());
  const auto rows = static_cast<std::size_t>(tensor.shape[0]), columns = static_cast<std::size_t>(tensor.shape[1]);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
  }
  return turned;
}

/// All weights and biases of a role, one after another.
std::vector<float> values_of(const Checkpoint& checkpoint, Role role, int layer) {
  std::vector<float> all;
  for (const auto& names : {checkpoint.names().weights(role, layer), checkpoint.names().biases(role, layer)}) {
    for (const TensorName& name : names) {
      const std::vector<float> values = values_of(checkpoint, name);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

std::string fault(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  try {
    Checkpoint(folder.write("m.gguf", builder.build()));
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("m.gguf"));
    return error.what();
  }
}

std::string fault_with(const std::function<void(GgufBuilder&)>& more) {
  SmallModel model;
  model.more = more;
  return fault(model.build());
}

}  // namespace

TEST_CASE("a GGUF file describes the model of its original folder, weight by weight") {
  const auto [file, model] = GENERATE(table<std::string, std::string>({
      {"llama-mha3h", "llama-mha3h"},
      {"split-00001-of-00003", "llama3-gqa-scaled-tied"},
      {"empty-first-00001-of-00004", "llama3-gqa-scaled-tied"},
      {"qwen2-bias-tied", "qwen2-bias-tied"},
      {"qwen3-qknorm-headdim", "qwen3-qknorm-headdim"},
      {"olmo-tied", "olmo-tied"},
      {"phi-partial", "phi-partial"},
      {"phi3-swa7", "phi3-swa7"},
      {"phi3-longrope", "phi3-longrope"},
      {"gpt2", "gpt2"},
      {"mpt-alibi-4h", "mpt-alibi-4h"},
      {"mpt-foundry-3b-like", "mpt-foundry-3b-like"},
  }));
  CAPTURE(file);
  const Checkpoint gguf(fixture(text("gguf/", file, ".gguf"))), folder(fixture(text("models/", model)));
  CHECK(gguf.config() == folder.config());
  CHECK(gguf.family().model_type == folder.family().model_type);
  CHECK(gguf.notes().empty());
  const ModelSettings &found = gguf.settings(), &expected = folder.settings();
  CHECK(found.context == expected.context);
  CHECK(found.norm_epsilon == expected.norm_epsilon);
  CHECK(found.rope_theta == expected.rope_theta);
  CHECK(found.tied_embeddings == expected.tied_embeddings);
  CHECK(found.clip_qkv == expected.clip_qkv);
  CHECK(found.window == expected.window);
  CHECK(found.attention_scale == expected.attention_scale);
  CHECK(found.logit_scale == expected.logit_scale);
  CHECK(found.alibi_bias_max == expected.alibi_bias_max);
  if (expected.rope_scaling.kind == RopeScaling::Kind::longrope) {
    CHECK(found.rope_scaling.kind == RopeScaling::Kind::longrope);
    CHECK(found.rope_scaling.original_context == expected.rope_scaling.original_context);
    CHECK(found.rope_scaling.attention_factor == expected.rope_scaling.attention_factor);
    CHECK(found.rope_scaling.short_factors == expected.rope_scaling.short_factors);
    CHECK(found.rope_scaling.long_factors == expected.rope_scaling.long_factors);
  }
  for (int r = 0; r <= static_cast<int>(Role::head); ++r) {
    const Role role = static_cast<Role>(r);
    if (is_optional(role)) continue;
    for (int layer = 0; layer < (is_of_layer(role) ? gguf.config().layers : 1); ++layer) {
      CAPTURE(r, layer);
      CHECK((values_of(gguf, role, layer) == values_of(folder, role, layer)));
    }
  }
}

TEST_CASE("llama.cpp's pairs of query and key rows are separated into halves") {
  // A head of eight rows: row 2j + s of the file is row 4s + j.
  SmallModel small;
  small.hidden = 16, small.heads = 2, small.kv_heads = 1;
  const TemporaryFolder folder;
  const Checkpoint checkpoint(folder.write("m.gguf", small.build().build()));
  const GgufTensor* stored = checkpoint.gguf()->find("blk.0.attn_q.weight");
  const Tensor* turned = checkpoint.find("blk.0.attn_q.weight");
  const std::vector<std::size_t> expected{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  constexpr std::size_t row = 16 * sizeof(float);
  for (std::size_t r = 0; r < expected.size(); ++r) {
    CHECK(std::memcmp(turned->bytes + r * row, stored->bytes + expected[r] * row, row) == 0);
  }
  CHECK(checkpoint.find("blk.0.attn_v.weight")->bytes == checkpoint.gguf()->find("blk.0.attn_v.weight")->bytes);
  small.architecture = "qwen2";
  const Checkpoint other(folder.write("q.gguf", small.build().build()));
  CHECK(other.find("blk.0.attn_q.weight")->bytes == other.gguf()->find("blk.0.attn_q.weight")->bytes);
}

TEST_CASE("queries, keys and values in one matrix of a GGUF file equal three matrices") {
  for (const char* name : {"llama-mha3h", "olmo-tied", "qwen2-bias-tied"}) {
    CAPTURE(name);
    const Checkpoint apart(fixture(text("gguf/", name, ".gguf")));
    GgufBuilder builder;
    for (const auto& [key, value] : apart.gguf()->fields().entries()) {
      if (value.is(GgufValueType::string) && !value.is_array) builder.string(key, value.string());
      if (value.is(GgufValueType::u32) && !value.is_array)
        builder.u32(key, static_cast<std::uint32_t>(*value.integer()));
      if (value.is(GgufValueType::f32) && !value.is_array) builder.f32(key, static_cast<float>(*value.number()));
    }
    const auto bytes_of_tensor = [&](const std::string& tensor) {
      const GgufTensor* found = apart.gguf()->find(tensor);
      REQUIRE(found != nullptr);
      return std::string(reinterpret_cast<const char*>(found->bytes), found->size_bytes);
    };
    for (const GgufTensor* tensor : apart.gguf()->tensors()) {
      const std::string full{tensor->name};
      const auto part = [&](const char* module) { return full.find(module) != full.npos; };
      if (part("attn_k.") || part("attn_v.")) continue;
      std::vector<std::uint64_t> dims(tensor->shape.rbegin(), tensor->shape.rend());
      std::string fused = full, bytes = bytes_of_tensor(full);
      if (part("attn_q.")) {
        const auto named = [&](const char* module) {
          return std::string(full).replace(full.find("attn_q."), 6, module);
        };
        fused = named("attn_qkv");
        bytes += bytes_of_tensor(named("attn_k")) + bytes_of_tensor(named("attn_v"));
        const auto kv = static_cast<std::uint64_t>(apart.config().kv_heads * apart.config().head_dim);
        dims.back() += 2 * kv;
      }
      builder.tensor(fused, dims, tensor->type->id, bytes);
    }
    const TemporaryFolder folder;
    const Checkpoint fused(folder.write("fused.gguf", builder.build()));
    CHECK(fused.config() == apart.config());
    for (int layer = 0; layer < apart.config().layers; ++layer) {
      std::vector<float> weights, biases;
      for (const TensorName& weight : apart.names().weights(Role::qkv, layer)) {
        const auto values = values_of(apart, weight);
        weights.insert(weights.end(), values.begin(), values.end());
      }
      for (const TensorName& bias : apart.names().biases(Role::qkv, layer)) {
        const auto values = values_of(apart, bias);
        biases.insert(biases.end(), values.begin(), values.end());
      }
      weights.insert(weights.end(), biases.begin(), biases.end());
      CHECK((values_of(fused, Role::qkv, layer) == weights));
    }
  }
}

TEST_CASE("metadata of a GGUF model may have any number type, and one value per layer") {
  CHECK(fault(SmallModel{}.build()).empty());
  const auto one_per_layer = [](const std::vector<std::int32_t>& heads) {
    SmallModel model;
    model.layers = 2;
    model.without = "attention.head_count_kv";
    model.more = [heads](GgufBuilder& file) { file.numbers("llama.attention.head_count_kv", gguf_i32, heads); };
    return fault(model.build());
  };
  CHECK(one_per_layer({1, 1}).empty());
  CHECK_THAT(one_per_layer({1, 2}),
             Catch::Contains("layers of different sizes") && Catch::Contains("config.unsupported"));
  CHECK_THAT(one_per_layer({1}), Catch::Contains("head_count_kv") && Catch::Contains("gguf.bad-value"));
  CHECK_THAT(one_per_layer({-1, -1}), Catch::Contains("head_count_kv") && Catch::Contains("gguf.bad-value"));
  CHECK_THAT(one_per_layer({}), Catch::Contains("head_count_kv") && Catch::Contains("gguf.bad-value"));
}

TEST_CASE("unsupported models are reported by name") {
  CHECK_THAT(fault(GgufBuilder().string("general.architecture", "rwkv7")),
             Catch::Contains("'rwkv7'") && Catch::Contains("llama, qwen2") &&
                 Catch::Contains("gguf.unsupported-architecture"));
  CHECK_THAT(fault(GgufBuilder().string("general.architecture", "mamba")),
             Catch::Contains("gguf.unsupported-architecture"));
  CHECK_THAT(fault(GgufBuilder().string("general.architecture", "clip")), Catch::Contains("gguf.projector"));
  CHECK_THAT(fault(GgufBuilder().string("general.architecture", "llama").string("general.type", "adapter")),
             Catch::Contains("gguf.adapter"));
  CHECK_THAT(fault(GgufBuilder().string("general.architecture", "llama")), Catch::Contains("gguf.no-tensors"));
  CHECK_THAT(fault(GgufBuilder()), Catch::Contains("general.architecture") && Catch::Contains("gguf.missing-key"));
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.u32("llama.expert_count", 8); }),
             Catch::Contains("8 experts") && Catch::Contains("'blk.0.ffn_gate_inp.weight'"));
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.u32("llama.expert_count", 1025); }),
             Catch::Contains("llama.expert_count") && Catch::Contains("gguf.bad-value"));
  CHECK(fault_with([](GgufBuilder& file) { file.u32("llama.expert_count", 0); }).empty());
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.f32("llama.logit_scale", 0.0625f); }),
             Catch::Contains("llama.logit_scale") && Catch::Contains("config.unsupported"));
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.string("llama.rope.scaling.type", "spiral"); }),
             Catch::Contains("'spiral'") && Catch::Contains("config.unsupported"));
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.u32("general.quantization_version", 1); }),
             Catch::Contains("config.unsupported"));
  CHECK_THAT(fault_with([](GgufBuilder& file) {
               file.u32("llama.attention.key_length", 4).u32("llama.attention.value_length", 8);
             }),
             Catch::Contains("config.unsupported"));
}

TEST_CASE("a GGUF model with inconsistent parts is rejected, naming the key or the tensor") {
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"}) {
    SmallModel model;
    model.without = key;
    CHECK_THAT(fault(model.build()), Catch::Contains(key) && Catch::Contains("gguf.missing-key"));
  }
  SmallModel model;
  model.without = "epsilon";
  CHECK_THAT(fault(model.build()), Catch::Contains("layer_norm_rms_epsilon") && Catch::Contains("gguf.missing-key"));
  model.without = "token_embd.weight";
  CHECK_THAT(fault(model.build()),
             Catch::Contains("token_embd.weight") && Catch::Contains("checkpoint.missing-tensor"));
  CHECK_THAT(
      fault_with([](GgufBuilder& file) { file.strings("tokenizer.ggml.tokens", std::vector<std::string>(9, "a")); }),
      Catch::Contains("10 rows") && Catch::Contains("9 tokens") && Catch::Contains("gguf.vocabulary-size"));
  const auto with_tensor = [](const char* name, std::uint32_t type, std::uint64_t width, std::size_t bytes) {
    return fault(SmallModel{}.build().tensor(name, {width}, type, std::string(bytes, '\0')));
  };
  CHECK_THAT(with_tensor("blk.0.attn_sinks.weight", 0, 4, 16),
             Catch::Contains("'blk.0.attn_sinks.weight'") && Catch::Contains("gguf.unknown-tensor"));
  CHECK_THAT(with_tensor("blk.1.attn_norm.weight", 0, 8, 32),
             Catch::Contains("'blk.1.attn_norm.weight'") && Catch::Contains("gguf.unknown-tensor"));
  CHECK_THAT(with_tensor("blk.0.attn_output.bias", 0, 8, 32), Catch::Contains("gguf.unknown-tensor"));
  CHECK_THAT(with_tensor("x", 40, 64, 36),
             Catch::Contains("'x'") && Catch::Contains("NVFP4") && Catch::Contains("gguf.unsupported-type"));
  CHECK_THAT(with_tensor("rope_freqs.weight", 0, 2, 8),  // zeros
             Catch::Contains("'rope_freqs.weight' [0]") && Catch::Contains("gguf.bad-frequencies"));
  CHECK_THAT(with_tensor("rope_freqs.weight", 0, 3, 12),
             Catch::Contains("expected F32 [2]") && Catch::Contains("checkpoint.wrong-shape"));
  CHECK_THAT(fault_with([](GgufBuilder& file) { file.u32("llama.attention.key_length", 2000); }),
             Catch::Contains("key_length"));
}

TEST_CASE("matrices may be in blocks, vectors may not") {
  SmallModel model;
  model.hidden = 32, model.without = "output_norm.weight";
  const TemporaryFolder folder;
  const Checkpoint checkpoint(
      folder.write("m.gguf", model.build().tensor("output_norm.weight", {32}, 8, std::string(34, '\1')).build()));
  const TensorName name = checkpoint.names().weights(Role::final_norm).front();
  CHECK_THROWS_WITH(checkpoint.tensor(name.name, name.shape),
                    Catch::Contains("Q8_0") && Catch::Contains("checkpoint.wrong-dtype"));
  const Checkpoint blocks(fixture("gguf/all-types.gguf"));
  const TensorName table = blocks.names().weights(Role::embedding).front();
  CHECK(blocks.tensor(table.name, table.shape).dtype == DType::q6_k);
}

TEST_CASE("a GGUF model ends its text after the tokens in its metadata and after known markers") {
  const auto ends = [](const std::vector<std::int32_t>& types, auto&& more) {
    SmallModel model;
    model.more = [&](GgufBuilder& file) {
      const std::vector<std::string> tokens{"a",           "<|im_end|>", "</s>",       "c", "d",
                                            "<|fim_pad|>", "e",          "<|eot_id|>", "g", "h"};
      file.strings("tokenizer.ggml.tokens", tokens);
      file.numbers("tokenizer.ggml.token_type", gguf_i32, types);
      more(file);
    };
    const TemporaryFolder folder;
    return Checkpoint(folder.write("m.gguf", model.build().build())).settings().end_tokens;
  };
  const std::vector<std::int32_t> types{1, 3, 1, 1, 3, 3, 1, 3, 1, 1};
  CHECK(ends(types, [](GgufBuilder&) {}) == std::vector<Token>{1, 7});
  CHECK(ends(types, [](GgufBuilder& f) {
          f.u32("tokenizer.ggml.eos_token_id", 4).u32("tokenizer.ggml.eot_token_id", 7);
        }) == std::vector<Token>{4, 7, 1});
  CHECK(ends(types, [](GgufBuilder& f) {
          f.u32("tokenizer.ggml.eos_token_id", 10).number("tokenizer.ggml.eot_token_id", gguf_i32, -1);
          f.number("tokenizer.ggml.eom_token_id", 11, std::int64_t{4});
        }) == std::vector<Token>{4, 1, 7});
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    CHECK_THAT(fault_with([&](GgufBuilder& f) { f.string(key, "</s>"); }),
               Catch::Contains(key) && Catch::Contains("gguf.bad-value"));
  }
}

TEST_CASE("the vocabulary of a GGUF file consists of its tokens without unused ones") {
  SmallModel model;
  model.vocab = 3;
  model.more = [](GgufBuilder& file) {
    file.strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "[PAD1]", "<s>"});
    file.numbers("tokenizer.ggml.token_type", gguf_i32, std::vector<std::int32_t>{1, 5, 3});
  };
  const TemporaryFolder folder;
  CHECK(read_vocabulary(folder.write("m.gguf", model.build().build())) == std::vector<std::string>{"a", "", "<s>"});
  CHECK(read_vocabulary(folder.write("m.gguf", SmallModel{}.build().build())).empty());
}
