// Sequences with adapters: their results alone, and in batches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/model/load.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// Every family: fused and separate projections, gates and none, biases, clips, norms of heads, a narrow embedding.
inline const char* const adapted_fixtures[] = {"llama-mha3h",
                                               "llama-bias",
                                               "llama3-gqa-scaled-tied",
                                               "mistral-swa8",
                                               "qwen2-bias-tied",
                                               "qwen3-qknorm-headdim",
                                               "phi-partial",
                                               "phi3-swa7",
                                               "gpt2",
                                               "opt-preln",
                                               "opt-postln-proj",
                                               "mpt-alibi-4h",
                                               "mpt-foundry-gqa-qkgn-swa",
                                               "olmo-clip-untied",
                                               "mosaicgpt-qkln-alibi",
                                               "gemma2",
                                               "granite-untied-bias",
                                               "gptneox-parallel"};

using LogitRows = std::vector<std::vector<float>>;

/// The logits after each token of a sequence that grows token by token, alone, with an adapter or without.
inline LogitRows logits_alone(const AnyModel& model, const std::vector<Token>& text, const AdapterRef& adapter) {
  Sequence sequence = model.sequence();
  sequence.adapt(adapter);
  LogitRows rows;
  Batch batch;
  for (const Token token : text) {
    batch.clear();
    batch.add(sequence, {&token, 1}, {.result = RowResult::logits});
    model.forward(batch);
    const auto logits = batch.logits(0);
    rows.emplace_back(logits.data, logits.data + logits.size());
  }
  return rows;
}

/// The largest difference over the largest logit.
inline double distance(const LogitRows& found, const LogitRows& expected) {
  double largest = 0, most = 0;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      largest = std::max(largest, std::abs(double{expected[r][i]}));
      most = std::max(most, std::abs(double{found[r][i]} - double{expected[r][i]}));
    }
  }
  return most / largest;
}

inline bool same_bits(const float* row, const std::vector<float>& expected) {
  return std::memcmp(row, expected.data(), expected.size() * sizeof(float)) == 0;
}

/// Adapters of a model: of all ranks, types and modules, and one of rank 40 of attention alone.
inline std::vector<AdapterRef> some_adapters(const AnyModel& model, const Checkpoint& checkpoint) {
  const TemporaryFolder folder;
  std::vector<AdapterRef> adapters;
  const auto add = [&](const RandomAdapter& how) {
    const auto path = folder.path() / std::to_string(adapters.size());
    write_random_adapter(path, checkpoint, how);
    adapters.push_back(load_adapter(path, model));
  };
  add({.seed = 1, .type = DType::bf16});
  add({.seed = 2, .rank = 16, .type = DType::f16});
  add({.seed = 3, .rank = 1, .type = DType::f32});
  add({.seed = 4, .rank = 40, .type = DType::bf16, .only = [](const std::string& module) {
         return module.find("attn") != std::string::npos || module.find("attention") != std::string::npos;
       }});
  return adapters;
}

/// A growing sequence with its adapter.
struct AdaptedLine {
  std::vector<Token> text;
  AdapterRef adapter;
  LogitRows expected;
  Sequence sequence;
};

struct MixedOutcome {
  int compared = 0, wrong = 0;
};

/// Sequences with the adapters in turn, every third without, in batches of random sizes. Counts the rows whose bits
/// differ from those alone. swapped: exchanges the adapters of the first two.
inline MixedOutcome run_mixed(const AnyModel& model, const std::vector<AdapterRef>& adapters, int count, int length,
                              std::uint64_t seed, bool swapped = false) {
  std::uint64_t salt = 0;
  const auto pick = [&](int n) { return static_cast<int>(mix(seed * 7919 + ++salt) % static_cast<std::uint64_t>(n)); };
  const KvPool pool = model.pool({.share_prefixes = true});
  std::vector<AdaptedLine> lines;
  for (int i = 0; i < count; ++i) {
    const AdapterRef adapter = i % 3 == 2 ? nullptr : adapters[static_cast<std::size_t>(i) % adapters.size()];
    auto text = some_text(seed + static_cast<std::uint64_t>(i % 5), length, model.info().vocab);  // some equal
    LogitRows expected = logits_alone(model, text, adapter);
    lines.push_back({std::move(text), adapter, std::move(expected), Sequence(pool, 0, adapter)});
  }
  if (swapped) {
    lines[0].sequence.adapt(lines[1].adapter);
    lines[1].sequence.adapt(lines[0].adapter);
  }
  MixedOutcome outcome;
  Batch batch;
  for (int round = 0; round < 40; ++round) {
    batch.clear();
    std::vector<std::pair<const AdaptedLine*, int>> added;
    for (AdaptedLine& line : lines) {
      const int at = line.sequence.length();
      const int more = std::min(pick(3) == 0 ? 1 + pick(80) : 1 + pick(3), length - at);
      if (more <= 0 || pick(5) == 0) continue;
      const int rows = pick(4) == 0 ? 0 : 1 + pick(more);
      batch.add(line.sequence,
                std::span(line.text).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(more)),
                {.result = rows == 0 ? RowResult::nothing : RowResult::logits, .rows = rows});
      added.emplace_back(&line, at + more - rows);
    }
    if (batch.size() == 0) continue;
    model.forward(batch);
    for (int i = 0; i < batch.size(); ++i) {
      const Batch::Item& item = batch.items()[static_cast<std::size_t>(i)];
      for (int r = 0; item.spec.result == RowResult::logits && r < item.spec.rows; ++r, ++outcome.compared) {
        const auto& expected = added[static_cast<std::size_t>(i)].first->expected;
        outcome.wrong += !same_bits(batch.logits(i).row(r),
                                    expected[static_cast<std::size_t>(added[static_cast<std::size_t>(i)].second + r)]);
      }
    }
  }
  return outcome;
}

}  // namespace slm::testing
