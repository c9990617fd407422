// GGUF files that slm writes: they contain the original models and tokenizers.
#include "slm/awq/gguf_output.hpp"
#include "slm/io/gguf_file.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "slm/backend/reference/reference.hpp"
#include "slm/decode/perplexity.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/gguf_tokenizer.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

constexpr ModelConfig superblock_shape{
    .layers = 2, .hidden = 256, .ffn = 512, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 130};

std::vector<float> logits_of(const fs::path& model) {
  const std::vector<Token> tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
  Session session(load(model, backend::Reference{}));
  const auto rows = session.forward(tokens, static_cast<int>(tokens.size()));
  return {rows.data, rows.data + rows.size()};
}

/// The folder's model with every matrix rounded and read back, type by type.
void write_rounded(const fs::path& model, const fs::path& out, const std::function<DType(const Tensor&)>& type_of) {
  const Checkpoint checkpoint(model);
  std::vector<std::vector<float>> data;
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    auto& values = data.emplace_back(static_cast<std::size_t>(tensor->elements()));
    convert(*tensor, 0, tensor->elements(), values.data());
    const DType type = tensor->shape.size() == 2 ? type_of(*tensor) : DType::f32;
    const auto count = static_cast<std::size_t>(values_of_block(type));
    std::vector<std::byte> block(bytes_of(type));
    for (std::size_t first = 0; type != DType::f32 && first < values.size(); first += count) {
      encode(type, &values[first], block.data());
      GgufBlock read;
      decode(type, block.data(), read);
      for (std::size_t n = 0; n < count; ++n) values[first + n] = read.value_of(n);
    }
    tensors.push_back({name, DType::f32, tensor->shape, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(float)});
  }
  fs::create_directories(out);
  write_safetensors(out / "model.safetensors", tensors);
  fs::copy_file(model / "config.json", out / "config.json");
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

void check_same_ids(const fs::path& one, const fs::path& other) {
  const Tokenizer expected = Tokenizer::from(one), found = Tokenizer::from(other);
  const Json known = Json::parse(std::ifstream(fixture("tokenizers/expected.json")));
  for (const auto& text : known.at("strings")) {
    const auto string = text.get<std::string>();
    INFO(string);
    const std::vector<Token> ids = expected.encode(string);
    CHECK(found.encode(string) == ids);
    CHECK(found.encode(string, false) == expected.encode(string, false));
    CHECK(found.decode(ids) == expected.decode(ids));
    CHECK(found.decode(ids, false) == expected.decode(ids, false));
  }
}

}  // namespace

TEST_CASE("a GGUF file of rounded weights gives the logits of the folder that holds the same weights, bit for bit") {
  const TemporaryFolder folder;
  for (const bool tied : {true, false}) {
    const fs::path model = folder.path() / (tied ? "tied" : "untied");
    write_random_checkpoint<bfloat16_t>(model, superblock_shape, 11, tied);
    for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k}) {
      CAPTURE(tied, name_of(type));
      const fs::path out = model / (std::string{name_of(type)} + ".gguf"), rounded = model / name_of(type);
      const quantize::GgufReport report = quantize::write_gguf(model, out, {.type = type, .threads = 2});
      const bool superblocks = values_of_block(type) == 256;
      write_rounded(model, rounded, [&](const Tensor& tensor) {
        const bool head = tensor.name == "lm_head.weight" || (tied && tensor.name.ends_with("embed_tokens.weight"));
        return head ? (superblocks ? DType::q6_k : DType::q8_0) : type;
      });
      CHECK(logits_of(out) == logits_of(rounded));
      CHECK(report.bytes_after < report.bytes_before);
    }
  }
}

TEST_CASE("rows that are not a multiple of superblocks become blocks of 32, and other rows stay floats") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  ModelConfig shape = superblock_shape;
  shape.hidden = 96;
  shape.ffn = 112;
  write_random_checkpoint<float>(model, shape, 3, true);
  const auto report = quantize::write_gguf(model, folder.path() / "k.gguf", {.type = DType::q4_k});
  // The projection of attention is 256 wide, down 112, all others 96.
  CHECK(report.matrices == std::map<std::string_view, int>{{"F32", 2}, {"Q4_K", 2}, {"Q5_0", 10}, {"Q8_0", 1}});
  write_rounded(model, folder.path() / "rounded", [](const Tensor& tensor) {
    if (tensor.shape[1] == 112) return DType::f32;
    if (tensor.shape[1] == 256) return DType::q4_k;
    return tensor.name.ends_with("embed_tokens.weight") ? DType::q8_0 : DType::q5_0;
  });
  CHECK(logits_of(folder.path() / "k.gguf") == logits_of(folder.path() / "rounded"));
}

TEST_CASE("models of every family that GGUF supports are written without a change of their logits") {
  const TemporaryFolder folder;
  int written = 0;
  for (const auto& entry : fs::directory_iterator(fixture("models"))) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    if (!fs::exists(entry.path() / "config.json")) continue;  // the logits of a GGUF file alone
    const fs::path out = folder.path() / (name + ".gguf");
    const std::string id = error_id([&] { quantize::write_gguf(entry.path(), out, {.type = DType::f32}); });
    static const std::set<std::string> others{"bitnet-plain", "glm", "helium", "ministral-layer-types"};
    const bool other_family = name.starts_with("opt-") || name.starts_with("mosaicgpt-") || others.contains(name);
    // Windows in some of the layers, a factor of the scores or slopes for a number of heads that is not a power of two:
    // GGUF's architecture of the same name has no key for them.
    static const std::set<std::string> beyond{
        "qwen2-swa-from-layer1", "qwen2-long", "mpt-foundry-mqa", "mpt-foundry-qkln-alibi6h",
        // Newer families: other scales, patterns of layers, bounds of YaRN.
        "gemma2-scale", "gemma3-4b", "gemma3-4b-nested", "gemma3-finalcap", "smollm3-interval", "smollm3-window",
        "llama-yarn-factor", "qwen2-layer-types", "qwen3-layer-types", "apertus"};
    if (id != "no error") {
      CHECK(id == "quantize.not-for-gguf");
      const ModelConfig config = Checkpoint(entry.path()).config();
      const bool other_layers = config.mixture.experts != 0 || !config.is_plain();
      CHECK((other_family || other_layers || beyond.contains(name)));
      CHECK_FALSE(fs::exists(out));
      continue;
    }
    CHECK_FALSE((other_family || beyond.contains(name)));
    ++written;
    if (name == "falcon-40b") {  // as llama.cpp's converter names them
      const Checkpoint checkpoint(out), source(entry.path());
      const Tensor &first = checkpoint.tensor("blk.0.attn_norm_2.weight", {36}),
                   &second = checkpoint.tensor("blk.0.attn_norm.weight", {36});
      CHECK(std::memcmp(first.bytes, source.find("transformer.h.0.ln_attn.weight")->bytes, first.size_bytes) == 0);
      CHECK(std::memcmp(second.bytes, source.find("transformer.h.0.ln_mlp.weight")->bytes, second.size_bytes) == 0);
    }
    const auto expected = logits_of(entry.path()), found = logits_of(out);
    if (name.starts_with("llama3") || name == "exaone4-1.2b") {  // its scaling becomes divisors, which are rounded
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == Approx(expected[i]).margin(1e-5));
    } else {
      CHECK(found == expected);
    }
    // And again, for the GGUF file itself.
    const fs::path again = folder.path() / (name + "-again.gguf");
    quantize::write_gguf(out, again, {.type = DType::f32});
    CHECK(logits_of(again) == found);
  }
  CHECK(written == 65);
}

TEST_CASE("scales folded into the blocks of a GGUF file do not change its logits") {
  const TemporaryFolder folder;
  std::set<quantize::Fold> seen;
  for (const char* name : {"llama-bias", "llama3-gqa-scaled-tied", "mistral-swa8", "olmo-tied", "phi-partial",
                           "phi3-longrope", "phi3-swa7", "qwen2-bias-tied", "qwen3-qknorm-headdim", "mpt-alibi-4h",
                           "gemma2", "nemotron", "glm4", "gptneox-parallel", "falcon-7b", "internlm2"}) {
    CAPTURE(name);
    const fs::path model = fixture(std::string{"models/"} + name), out = folder.path() / (std::string{name} + ".gguf");
    const Checkpoint checkpoint(model);
    const ModelConfig& shape = checkpoint.config();
    quantize::detail::GgufOutput output(model, {.type = DType::f32});
    std::vector<quantize::LayerReport> layers;
    for (int l = 0; l < shape.layers; ++l) {
      quantize::LayerReport& layer = layers.emplace_back(quantize::LayerReport{l, {}});
      for (const quantize::Fold fold : quantize::folds_of(shape, checkpoint.settings(), false)) {
        seen.insert(fold);
        const bool wide = fold == quantize::Fold::up_to_down;
        const int count = fold == quantize::Fold::value_to_out ? shape.kv_heads * shape.head_dim
                          : wide                               ? shape.ffn
                                                               : shape.hidden;
        quantize::SearchOutcome& outcome = layer.folds.emplace_back();
        outcome.fold = fold;
        for (int i = 0; i < count; ++i) {
          outcome.scales.push_back(std::exp(std::sin(2.7f * static_cast<float>(i + l) + 1)));
        }
      }
    }
    output.fold(std::move(layers));
    output.write(out);
    const auto expected = logits_of(model), found = logits_of(out);
    REQUIRE(found.size() == expected.size());
    double change = 0, size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      change += double{found[i] - expected[i]} * double{found[i] - expected[i]};
      size += double{expected[i]} * double{expected[i]};
    }
    CHECK(std::sqrt(change / size) < 1e-5);
    CHECK(change > 0);  // the weights differ
  }
  CHECK(seen.size() == 5);
}

TEST_CASE("scales searched on a text lower the perplexity of a Q4_0 GGUF file, without making it larger") {
  const TemporaryFolder folder;
  const fs::path model = demo_pair("draft"), examples = source_path("examples/demo_pair");
  std::ifstream text(examples / "measure.py");
  auto tokens = Tokenizer::from(model).encode(std::string(std::istreambuf_iterator<char>(text), {}));
  const auto perplexity_of = [&](const fs::path& file) {
    return perplexity(load(file), tokens, {.window = 256}).value();
  };
  const fs::path without = folder.path() / "without.gguf", with = folder.path() / "with.gguf";
  quantize::GgufOptions options{.type = DType::q4_0, .threads = 2};
  const auto rounded = quantize::write_gguf(model, without, options);
  CHECK(rounded.layers.empty());
  options.calibration_text = examples / "train.py";
  options.calibration = {.samples = 4, .sequence_length = 128};
  options.search_samples = 4;
  const auto folded = quantize::write_gguf(model, with, options);
  CHECK(folded.bytes_after == rounded.bytes_after);
  CHECK(folded.matrices == rounded.matrices);
  int improved = 0;
  for (const quantize::LayerReport& layer : folded.layers) {
    for (const quantize::SearchOutcome& fold : layer.folds) {
      CHECK(fold.best <= fold.rounded);
      improved += fold.best < fold.rounded;
    }
  }
  CHECK(improved > 0);
  CHECK(perplexity_of(with) < perplexity_of(without));
}

TEST_CASE(
    "a calibration text is rejected for GGUF types without a gain, and for models whose blocks cannot be folded") {
  const TemporaryFolder folder;
  quantize::GgufOptions options{.type = DType::q4_1, .calibration_text = fixture("tokenizers/expected.json")};
  const fs::path out = folder.path() / "out.gguf";
  CHECK(error_id([&] { quantize::write_gguf(demo_pair("draft"), out, options); }) == "quantize.bad-options");
  options.type = DType::q4_0;
  CHECK(error_id([&] { quantize::write_gguf(fixture("models/gpt2"), out, options); }) == "quantize.unsupported");
  options.calibration_text = folder.path() / "absent";
  CHECK(error_id([&] { quantize::write_gguf(demo_pair("draft"), out, options); }).starts_with("io."));
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("a GGUF file keeps the tokenizer, the chat template and the end tokens") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  fs::copy(demo_pair("target"), model);
  Json config = read_json_object(model / "tokenizer_config.json");
  const std::string jinja =
      "{% for m in messages %}{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>'}}{% endfor %}";
  config["chat_template"] =
      Json::array({{{"name", "default"}, {"template", jinja}}, {{"name", "tool-use"}, {"template", "tools"}}});
  write_text_file(model / "tokenizer_config.json", config.dump());
  const fs::path out = folder.path() / "model.gguf", again = folder.path() / "again.gguf";
  quantize::write_gguf(model, out, {.type = DType::f32});
  quantize::write_gguf(out, again, {.type = DType::q8_0, .threads = 2});
  for (const fs::path& file : {out, again}) {
    check_same_ids(model, file);
    const GgufFile gguf(file);
    CHECK(gguf.fields().string("tokenizer.chat_template") == jinja);
    CHECK(gguf.fields().string("tokenizer.chat_template.tool_use") == "tools");
    CHECK(gguf.fields().strings("tokenizer.chat_templates") == std::vector<std::string_view>{"tool-use"});
    CHECK(Checkpoint(file).settings().end_tokens == Checkpoint(model).settings().end_tokens);
    CHECK(read_vocabulary(file) == read_vocabulary(model));
  }
  CHECK(GgufFile(again).fields().integer("general.file_type", 0, 100) == 7);
}

TEST_CASE("real tokenizers are written without changing their ids") {
  const TemporaryFolder folder;
  const fs::path weights = folder.path() / "weights";
  struct Case {
    const char *file, *as;
    int tokens;
  };
  for (const auto& [file, as, tokens] : {Case{"gpt2/tokenizer.json", "tokenizer.json", 50257},
                                         Case{"olmo/allenai_gpt-neox-olmo-dolma-v1_5.json", "tokenizer.json", 50280},
                                         Case{"llama2/tokenizer.model", "tokenizer.model", 32000},
                                         Case{"phi3/tokenizer.json", "tokenizer.json", 32064}}) {
    const auto path = test_data(std::string{"tokenizers/"} + file);
    SLM_SKIP_WITHOUT(path, "a real tokenizer");
    CAPTURE(file);
    const fs::path model = folder.path() / fs::path(file).parent_path();
    fs::create_directories(model);
    fs::copy_file(path, model / as);
    const std::string architecture = std::string{file}.starts_with("phi3") ? "phi3" : "llama";
    const auto write_to = [&](GgufWriter& writer) {
      writer.string("general.architecture", architecture);
      tokenizer_file::write_tokenizer(writer, model, static_cast<std::size_t>(tokens) + 7, architecture, {});
    };
    if (architecture ==
        "phi3") {  // some tokens of a later one keep the spaces after them, which readers do not support
      GgufWriter refused;
      CHECK(error_id([&] { write_to(refused); }) == "tokenizer.not-for-gguf");
      write_text_file(model / as, with_swallowing_tokens(read_json_object(model / as)).dump());
    }
    GgufWriter writer;
    write_to(writer);
    const fs::path out = folder.path() / "tokenizer.gguf";
    writer.write(out, [](std::size_t) { return std::span<const std::byte>{}; });
    check_same_ids(model, out);
    CHECK(GgufFile(out).fields().strings("tokenizer.ggml.tokens").size() == static_cast<std::size_t>(tokens) + 7);
  }
}

TEST_CASE("models that GGUF cannot represent are rejected, and no file remains") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model", out = folder.path() / "out.gguf";
  write_random_checkpoint<float>(model, tiny_shape, 5);
  const auto refused = [&](const quantize::GgufOptions& options = {.type = DType::q8_0}) {
    return error_id([&] { quantize::write_gguf(model, out, options); });
  };
  CHECK(refused({.type = DType::q5_1}) == "quantize.bad-options");
  // A tokenizer with more tokens than the embedding has rows, and one with a token that strips spaces.
  Json tokenizer = read_json_object(demo_pair("target") / "tokenizer.json");
  write_text_file(model / "tokenizer.json", tokenizer.dump());
  CHECK(refused() == "tokenizer.bad-id");
  tokenizer["added_tokens"][0]["lstrip"] = true;
  Json small = Json::object();
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    if (id < 101) small[token] = id;
  }
  tokenizer["model"]["vocab"] = small;
  tokenizer["model"]["merges"] = Json::array();
  write_text_file(model / "tokenizer.json", tokenizer.dump());
  CHECK(refused() == "tokenizer.not-for-gguf");
  tokenizer["added_tokens"][0]["lstrip"] = false;
  write_text_file(model / "tokenizer.json", tokenizer.dump());
  CHECK(refused() == "no error");
  CHECK(refused() == "quantize.output-exists");
  const fs::path twice = folder.path() / "twice.gguf";
  CHECK(error_id([&] { quantize::write_gguf(out, twice, {}); }) == "quantize.already-quantized");
  CHECK(error_id([&] { quantize::write_gguf(model, folder.path() / "absent" / "x.gguf", {}); }) == "io.unwritable");
  CHECK(files_in(folder.path()) == std::set<std::string>{"model", "out.gguf"});
  // A weight that is NaN.
  write_random_checkpoint<float>(model, tiny_shape, 5);
  std::fstream file(model / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.write(reinterpret_cast<const char*>(&nan), 4);
  file.close();
  CHECK(error_id([&] { quantize::write_gguf(model, twice, {.type = DType::q8_0}); }) == "quantize.overflow");
  CHECK(files_in(folder.path()) == std::set<std::string>{"model", "out.gguf"});
}
