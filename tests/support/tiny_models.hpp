// Models of one small layer, for tests that run them often.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "slm/lm/batch.hpp"
#include "slm/model/load.hpp"
#include "support/random_checkpoint.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

inline constexpr ModelConfig least_shape{
    .layers = 1, .hidden = 32, .ffn = 32, .heads = 2, .kv_heads = 1, .head_dim = 16, .vocab = 30};

/// A folder with such a model and a tokenizer of the letters a to z.
inline std::filesystem::path write_least_model(const std::filesystem::path& folder, std::uint64_t seed) {
  write_random_checkpoint<float>(folder, least_shape, seed);
  Json vocabulary = Json::object();
  for (int i = 0; i < 26; ++i) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
  const Json tokenizer{{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}},
                       {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                       {"decoder", {{"type", "ByteLevel"}}}};
  std::ofstream(folder / "tokenizer.json") << tokenizer.dump();
  return folder;
}

/// The logits after a short text.
template <class Model>
std::vector<float> some_logits(const Model& model) {
  Sequence sequence = model.sequence();
  Batch batch;
  batch.add(sequence, some_text(1, 5, model.info().vocab), {.result = RowResult::logits});
  model.forward(batch);
  const auto logits = batch.logits(0);
  return {logits.data, logits.data + logits.size()};
}

}  // namespace slm::testing
