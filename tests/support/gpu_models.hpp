// Whole models on a GPU backend, real or emulated: the fixtures' logits, the same bits for any chunks of a text, and
// speculation that changes nothing.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "slm/backend/reference/reference.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "support/golden.hpp"
#include "support/in_turn.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/temporary.hpp"

namespace slm::testing {

inline std::vector<float> copy_of(View<const float, 2> logits) { return {logits.data, logits.data + logits.size()}; }

/// Logits of the fixtures are within -10..10. Keys, values, queries and weights of attention are rounded to 11 bits,
/// and softmax turns a score's error into a relative one: 2^-11 of scores up to about ten, in each of two layers, then
/// a norm: 0.05. Weights of bfloat16 also make products round activations to 8 bits.
inline double logit_tolerance(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.second->dtype == DType::bf16; })
             ? 0.15
             : 0.05;
}

/// The expected logits, and the same bits for any chunks of a text. Rows without expected logits may have errors of up
/// to the tolerance too, in both of two logits.
inline void check_goldens(const AnyModel& model, const std::vector<GoldenCase>& goldens, double tolerance,
                          bool in_pieces = true) {
  Session text(model);
  int cases = 0;
  for (const GoldenCase& golden : goldens) {
    const int size = static_cast<int>(golden.ids.size());
    if (size > 200) continue;  // minutes in emulation under a sanitizer
    if (!every_combination() && cases > 0) break;
    text.truncate(0);
    const View<const float, 2> logits = text.forward(golden.ids, size);
    double worst = 0;
    for (std::size_t i = 0; i < golden.rows.size(); ++i) {
      for (std::int64_t v = 0; v < logits.extent(1); ++v) {
        const double difference = std::abs(golden.logits[i][static_cast<std::size_t>(v)] - logits(golden.rows[i], v));
        if (!(difference <= worst)) worst = difference;
      }
    }
    CHECK(worst < tolerance);
    for (int r = 0; r < size; ++r) {
      const float* const row = logits.row(r);
      const float largest = *std::max_element(row, row + logits.extent(1));
      CHECK(double{largest} - double{row[golden.argmax[static_cast<std::size_t>(r)]]} < 2 * tolerance);
    }
    ++cases;
    if (!in_pieces) continue;
    const std::vector<float> whole = copy_of(logits);
    for (const int piece : in_turn({7, 23, 1})) {
      if (piece == 1 && size > 30) continue;
      CAPTURE(piece);
      text.truncate(0);
      std::vector<float> pieces;
      for (int first = 0; first < size; first += piece) {
        const int count = std::min(piece, size - first);
        const auto part = copy_of(text.forward(
            std::span(golden.ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), count));
        pieces.insert(pieces.end(), part.begin(), part.end());
      }
      CHECK(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)) == 0);
    }
  }
  CHECK(cases > 0);
}

/// Logits of steps of one row and of three.
template <class Device>
std::vector<float> steps_of(const std::filesystem::path& folder, Device device, const LoadOptions& options) {
  Session text(load(folder, device, options));
  std::vector<float> all;
  for (int i = 0; i < 12; ++i) {
    const std::vector<Token> tokens{static_cast<Token>(i * 7 % 90), 5, static_cast<Token>(i * 5 % 90)};
    const int rows = i < 8 ? 1 : 3;
    const auto logits = copy_of(text.forward(std::span(tokens).first(static_cast<std::size_t>(rows)), rows));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

/// On two devices, or by two methods of one.
template <class Device, class Other>
void check_same_steps(const std::filesystem::path& folder, Device device, Other other,
                      const LoadOptions& options = {}) {
  const std::vector<float> expected = steps_of(folder, device, options), found = steps_of(folder, other, options);
  REQUIRE(found.size() == expected.size());
  CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
}

template <class Device>
void check_fixture(const std::filesystem::path& folder, Device device) {
  const Checkpoint checkpoint(folder);
  // With LongRoPE the table of frequencies depends on the chunks, as in upstream.
  const bool longrope = checkpoint.settings().rope_scaling.kind == RopeScaling::Kind::longrope;
  const auto goldens = read_golden(folder);
  // The errors of scores grow with a temperature of the position.
  const double scores = checkpoint.settings().temperature != 0 ? 2 : 1;
  const double tolerance = logit_tolerance(checkpoint) * scores * std::max(1.0, largest_logit(goldens) / 10);
  check_goldens(load(folder, device), goldens, tolerance, !longrope);
}

/// Speculative text is plain text, token for token. The text is the same when the host chooses, because the request
/// asks for log-probabilities, and when models choose themselves. The makers create new models, and adapter_of an
/// adapter of a target.
template <class MakeDraft, class MakeTarget>
void check_speculation_of(
    MakeDraft make_draft, MakeTarget make_target,
    const std::function<AdapterRef(const AnyModel&)>& adapter_of = [](const AnyModel&) { return AdapterRef{}; }) {
  const std::vector<Token> prompt{1, 5, 9, 3};
  for (const bool greedy : in_turn({true, false})) {
    Sampling sampling{.max_new_tokens = 24, .temperature = 0, .seed = 11, .ignore_end_tokens = true};
    if (!greedy) sampling.temperature = 0.8f, sampling.top_k = 60, sampling.top_p = 0.95f;
    const AnyModel alone = make_target(), target = make_target();
    Request request{.prompt = prompt, .sampling = sampling, .adapter = adapter_of(alone)};
    std::vector<Token> plain, by_host, speculative;
    AutoregressiveDecoder decoder{alone};
    decoder.generate(request, [&](Token token) { plain.push_back(token); });
    request.logprobs = {.raw = true};
    decoder.generate(request, [&](Token token) { by_host.push_back(token); });
    request.logprobs = {};
    request.adapter = adapter_of(target);
    SpeculativeDecoder both{make_draft(), target, {.draft_tokens = 5}};
    const Stats stats = both.generate(request, [&](Token token) { speculative.push_back(token); });
    CHECK(plain.size() == 24);
    CHECK(plain == by_host);
    CHECK(plain == speculative);
    CHECK(stats.draft_forwards > 0);
    CHECK(stats.disabled_reason.empty());
  }
}

/// With fixtures, the draft on one device and the target on another.
template <class Draft, class Target>
void check_speculation(const std::filesystem::path& draft, Draft draft_device, const std::filesystem::path& target,
                       Target target_device) {
  check_speculation_of([&] { return load(draft, draft_device); }, [&] { return load(target, target_device); });
}

/// On a device and on the reference backend.
template <class Device>
double worst_difference(const std::filesystem::path& model, Device device) {
  Session on_device(load(model, device)), plain(load(model, backend::Reference{}));
  const std::vector<Token> text{5, 90, 0, 31, 31, 7, 96, 64, 2, 18, 42};
  const auto found = copy_of(on_device.forward(text, 11)), expected = copy_of(plain.forward(text, 11));
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double{found[i]} - double{expected[i]});
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

/// A model of four bits against Reference, and speculation with it.
template <class Device>
void check_four_bits(Device device) {
  const std::filesystem::path original = fixture("models/llama-mha3h");
  for (const int group : {16, -1}) {  // tiles do not support groups of 16: such layers are dequantized
    const TemporaryFolder folder;
    quantized(Checkpoint(original), {.layout = Int4Layout::awq_gemm, .group = group}).write(folder.path());
    CHECK(worst_difference(folder.path(), device) < 0.15);
    const auto make = [&] { return load(folder.path(), device); };
    check_speculation_of([&] { return load(original, device); }, make);
  }
}

inline const std::vector<std::string> gpu_fixtures{"llama-mha3h",
                                                   "llama3-gqa-scaled-tied",
                                                   "llama-sharded-bf16",
                                                   "mistral-swa8",
                                                   "olmo-tied",
                                                   "qwen2-bias-tied",
                                                   "qwen3-qknorm-headdim",
                                                   "phi-partial",
                                                   "phi3-swa7",
                                                   "phi3-longrope",
                                                   "gpt2",
                                                   "opt-preln",
                                                   "mpt-alibi-4h",
                                                   "mpt-foundry-3b-like",
                                                   "mosaicgpt-qkln-alibi",
                                                   "llama-bias",
                                                   "olmo-clip-untied",
                                                   "qwen2-swa-from-layer1",
                                                   "opt-postln-proj",
                                                   "mpt-alibi-3h",
                                                   "mpt-foundry-mqa",
                                                   "mpt-foundry-qkln-alibi6h",
                                                   "mosaicgpt-wpe-bias-clip"};

}  // namespace slm::testing
