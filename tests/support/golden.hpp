// The expected logits of a fixture model: golden.json beside its weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/io/json.hpp"

namespace slm::testing {

struct GoldenCase {
  std::vector<Token> ids;
  std::vector<int> rows;                    // rows with expected logits
  std::vector<std::vector<double>> logits;  // [rows, vocab], computed in float64
  std::vector<int> argmax;                  // of every row
};

inline std::vector<GoldenCase> read_golden_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const Json json = Json::parse(reinterpret_cast<const char*>(bytes.data()),
                                reinterpret_cast<const char*>(bytes.data()) + bytes.size());
  std::vector<GoldenCase> cases;
  for (const Json& entry : json.is_array() ? json : json.at("cases")) {
    cases.push_back({entry.at("ids"), entry.at("rows"), entry.at("logits"), entry.at("argmax")});
  }
  return cases;
}

/// A tolerance may be a part of it.
inline double largest_logit(const std::vector<GoldenCase>& goldens) {
  double largest = 0;
  for (const GoldenCase& golden : goldens) {
    for (const auto& row : golden.logits) {
      for (const double logit : row) largest = std::max(largest, std::abs(logit));
    }
  }
  return largest;
}

inline std::vector<GoldenCase> read_golden(const std::filesystem::path& folder) {
  return read_golden_file(folder / "golden.json");
}

}  // namespace slm::testing
