// Ranks with partial sums (Sharing::fast_reduce) have the results of one rank except for the rounding of those sums,
// and a row's bits still depend only on its own sequence.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/load.hpp"
#include "support/adapted_texts.hpp"
#include "support/errors.hpp"
#include "support/in_turn.hpp"
#include "support/int4_layers.hpp"
#include "support/over_ranks.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_checkpoint.hpp"
#include "support/rank_texts.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Reference;

namespace {

constexpr Ranks adding(int size, int stages = 1, bool first_only_controls = false) {
  return {size, stages, first_only_controls, true};
}

/// Relative to the largest logit. In each order a sum of n products differs from the exact one by at most n * 2^-24 of
/// the sum of the magnitudes, so two orders differ by at most twice that. A layer has two such sums, with as many
/// products as attention and the hidden layer are wide. Norms preserve errors relative to the residual stream.
double tolerance_of(const ModelConfig& shape) {
  const int terms = std::max(shape.heads * shape.head_dim, shape.ffn);
  return shape.layers * 2 * 2.0 * terms * 0x1p-24;
}

/// Four bits: logits differ by 1e-4 of the largest from those of the dequantized weights in both cases, since
/// activations are rounded to 16 bits, and their last bits may change the rounding.
constexpr double tolerance_of_codes = 2 * 1e-4;

/// A text read token by token, and each adapter's.
LogitRows read(const AnyModel& model, const std::vector<AdapterRef>& adapters = {}) {
  const auto text = some_text(3, std::min(12, model.info().context), model.info().vocab);
  LogitRows rows = logits_alone(model, text, nullptr);
  for (const AdapterRef& adapter : adapters) {
    LogitRows more = logits_alone(model, text, adapter);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

template <class B>
double distance_over(Ranks how, const auto& device, const std::filesystem::path& folder, const LogitRows& expected,
                     const auto& read_here) {
  double found = 0;
  over_ranks<B>(how, device, [&](const auto& load_here) {
    found = distance(read_here(load_here(folder, LoadOptions{})), expected);
    return Bits{};
  });
  return found;
}

const auto plainly = [](const AnyModel& model) { return read(model); };

template <class B = Cpu>
void check_ranks(const std::filesystem::path& folder, std::initializer_list<Ranks> sizes, double tolerance,
                 const auto& device) {
  const LogitRows expected = read(load(folder, B{device()}));
  for (const Ranks how : in_turn(sizes)) {
    CAPTURE(folder, how.size, how.stages);
    CHECK(distance_over<B>(how, device, folder, expected, plainly) < tolerance);
  }
}

/// A copy of a model whose biases after attention and after the hidden layer are multiplied by `factor`; false: it has
/// none.
bool write_with_biases(const Checkpoint& source, float factor, const std::filesystem::path& to) {
  EditableCheckpoint copy;
  copy.config = read_json_object(source.folder() / "config.json");
  for (const auto& [name, tensor] : source.tensors()) {
    OwnedTensor same(name, tensor->dtype, tensor->shape);
    std::copy_n(tensor->bytes, tensor->size_bytes, same.storage.get());
    copy.add(std::move(same));
  }
  bool has_any = false;
  for (int layer = 0; layer < source.config().layers; ++layer) {
    for (const Role role : {Role::attention_out, Role::down}) {
      for (const TensorName& bias : source.names().biases(role, layer)) {
        OwnedTensor& tensor = copy.at(bias.name);
        std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
        convert(tensor, 0, tensor.elements(), values.data());
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
          tensor.set_float(i, factor * values[static_cast<std::size_t>(i)]);
        has_any = true;
      }
    }
  }
  copy.write(to);
  return has_any;
}

}  // namespace

TEST_CASE("every family: partial sums over ranks equal those of one rank except for rounding", "[long]") {
  for (const std::string& name : folders) {
    const auto folder = fixture("models/" + name);
    const double tolerance = tolerance_of(Checkpoint(folder).config());
    check_ranks(folder, {adding(2), adding(3), adding(4), adding(8), adding(4, 2), adding(5, 2, true)}, tolerance,
                one_thread);
    check_ranks<Reference>(folder, {adding(3)}, tolerance, [] { return Reference{}; });
  }
  check_ranks(demo_pair("target"), {adding(2), adding(4), adding(6, 3)},
              tolerance_of(Checkpoint(demo_pair("target")).config()), one_thread);
}

TEST_CASE("mixtures of experts: sums over attention's outputs are partial, those of experts are whole") {
  for (const char* name : {"qwen3moe", "gpt-oss-trunc", "granitemoeshared"})
    check_ranks(fixture(text("models/", name)), {adding(2), adding(4, 2)}, 1e-5, one_thread);
}

TEST_CASE("recurrent layers: sums over the hidden layer are partial, gated outputs of attention are whole") {
  for (const char* name : {"lfm2", "qwen35-mha", "granitehybrid", "falcon-h1", "nemotron-h"})
    check_ranks(fixture(text("models/", name)), {adding(2), adding(4, 2)}, 1e-5, one_thread);
}

TEST_CASE("latent attention: sums over the hidden layer are partial, outputs of attention are whole") {
  for (const char* name : {"deepseek-v3", "glm4-moe-lite"})
    check_ranks(fixture(text("models/", name)), {adding(2), adding(4, 2)}, 1e-5, one_thread);
}

TEST_CASE("the test detects biases added by every rank") {
  int with_biases = 0;
  for (const std::string& name : folders) {
    const Checkpoint source(fixture("models/" + name));
    const TemporaryFolder folder;
    if (!write_with_biases(source, 2, folder.path())) continue;
    ++with_biases;
    const LogitRows twice = read(load(folder.path(), Cpu(1)));
    CAPTURE(name);
    CHECK(distance_over<Cpu>(adding(2), one_thread, source.folder(), twice, plainly) > tolerance_of(source.config()));
  }
  CHECK(with_biases >= 5);
}

TEST_CASE("four-bit layers in every layout, and GGUF's blocks: the same") {
  const ModelConfig shape{
      .layers = 2, .hidden = 256, .ffn = 512, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 101};
  const TemporaryFolder source;
  write_random_checkpoint<bfloat16_t>(source.path(), shape, 11);
  for (const Int4Layout layout : all_layouts) {
    for (const int group : {32, 64, -1}) {
      const TemporaryFolder folder;
      write_quantized_checkpoint(source.path(), folder.path(), {.layout = layout, .group = group});
      CAPTURE(std::string(name_of(layout)), group);
      check_ranks(folder.path(), {adding(2), adding(3)}, tolerance_of_codes, one_thread);
    }
  }
  check_ranks(demo_pair("target-int4"), {adding(2), adding(3), adding(4, 2)}, tolerance_of_codes, one_thread);
  for (const char* file : {"all-types.gguf", "gpt2.gguf", "phi3-swa7.gguf"})
    check_ranks(fixture(text("gguf/", file)), {adding(2), adding(3)}, tolerance_of_codes, one_thread);
}

TEST_CASE("adapters: their part of sums over ranks is added once") {
  for (const char* name : adapted_fixtures) {
    const auto folder = fixture(text("models/", name));
    const Checkpoint checkpoint(folder);
    const AnyModel alone = load(folder, Cpu(1));
    const LogitRows expected = read(alone, some_adapters(alone, checkpoint));
    const LogitRows bare = read(alone, {nullptr, nullptr, nullptr, nullptr});
    const auto with_adapters = [&](const AnyModel& model) { return read(model, some_adapters(model, checkpoint)); };
    const double tolerance = tolerance_of(checkpoint.config());
    CHECK(distance(bare, expected) > tolerance);
    for (const Ranks how : in_turn({adding(2), adding(3), adding(4, 2)})) {
      CAPTURE(name, how.size, how.stages);
      CHECK(distance_over<Cpu>(how, one_thread, folder, expected, with_adapters) < tolerance);
    }
  }
}

TEST_CASE("in a batch over ranks with partial sums each text has the same bits as alone, token by token") {
  for (const auto& folder : {demo_pair("target"), demo_pair("target-int4"), fixture("models/phi-partial"),
                             fixture("models/mistral-swa8"), fixture("models/gpt2")}) {
    const Checkpoint checkpoint(folder);
    const int length = std::min(120, checkpoint.settings().context);
    for (const Ranks how : in_turn({adding(2), adding(3), adding(4), adding(4, 2)})) {
      CAPTURE(folder, how.size, how.stages);
      over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
        const AnyModel model = load_here(folder, LoadOptions{});
        const auto adapters = some_adapters(model, checkpoint);
        const auto outcome = run_mixed(model, adapters, 7, length, 1);
        CHECK(outcome.compared > 50);
        CHECK(outcome.wrong == 0);
        CHECK(run_mixed(model, adapters, 7, length, 1, true).wrong > 0);
        return Bits{};
      });
    }
  }
}

TEST_CASE("with partial sums speculative texts equal the plain ones, greedy and sampled, bit for bit") {
  const auto tokens_of = [](auto decoder, int vocab) {
    std::vector<Request> requests;
    for (const float temperature : {0.0f, 0.9f}) {
      requests.push_back(
          {.prompt = some_tokens(requests.size() + 7, 40, vocab),
           .sampling = {.max_new_tokens = 40, .temperature = temperature, .seed = 3, .ignore_end_tokens = true},
           .logprobs = {.raw = true, .sampled = true}});
    }
    Bits bits[2];
    decoder.generate(requests, [&](std::size_t request, const GeneratedToken& next) {
      const double numbers[] = {static_cast<double>(next.token), next.logprob, next.sampled_logprob};
      bits[request].add(numbers, 3);
      return true;
    });
    bits[0].add(bits[1].bytes.data(), static_cast<std::int64_t>(bits[1].bytes.size()));
    return bits[0];
  };
  for (const char* kind : {"", "-int4"}) {
    const auto target_folder = demo_pair(text("target", kind)), draft_folder = demo_pair(text("draft", kind));
    for (const Ranks how : in_turn({adding(2), adding(3), adding(4), adding(4, 2)})) {
      CAPTURE(kind, how.size, how.stages);
      over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
        const AnyModel target = load_here(target_folder, LoadOptions{}), draft = load_here(draft_folder, LoadOptions{});
        const Bits plain = tokens_of(AutoregressiveDecoder{target}, target.info().vocab);
        CHECK(tokens_of(SpeculativeDecoder{draft, target, {.draft_tokens = 4}}, target.info().vocab) == plain);
        CHECK(plain.bytes.size() == 2 * 40 * 3 * sizeof(double));
        return Bits{};
      });
    }
  }
}

TEST_CASE("ranks without partial sums are rejected before loading") {
  const auto load_in = [](Ranks how) {
    return error_id([&] {
      over_ranks<Cpu>(how, one_thread, [](const auto& load_here) {
        load_here(demo_pair("draft"), LoadOptions{});
        return Bits{};
      });
    });
  };
  CHECK(load_in(adding(1)) == "ranks.fast-reduce");
  CHECK(load_in(adding(2, 2)) == "ranks.fast-reduce");
  CHECK(load_in(adding(2, 1, true)) == "ranks.fast-reduce");
  CHECK(load_in(adding(3, 2)) == "ranks.pipeline");
  CHECK(load_in(adding(2)) == "no error");
}
