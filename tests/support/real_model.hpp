// A real model against the results of transformers for its weights: the cases of a golden file.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "slm/io/json.hpp"
#include "slm/speculative.hpp"
#include "support/paths.hpp"

namespace slm::testing {

/// The cases of SLM_TEST_DATA/MODEL/golden_TYPE.json.
inline Json read_golden_cases(const std::string& model, const std::string& type = "f32") {
  return Json::parse(std::ifstream(test_data(model + "/golden_" + type + ".json"))).at("cases");
}

/// Tolerances of logits against the golden ones: the largest difference, the sum, and the relative sum of squares.
struct Margins {
  double logit, sum, squares;
};

/// The logits of each case's last token.
inline void check_last_logits(const AnyModel& model, const Json& cases, const Margins& margins) {
  Session session(model);
  for (const Json& entry : cases) {
    CAPTURE(entry.at("name").get<std::string>(), margins.logit);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    session.truncate(0);
    const View<const float, 2> logits = session.forward(ids, 1);
    const float* row = logits.row(0);
    const Json& last = entry.at("last");
    for (const Json& top : last.at("top")) {
      CHECK(row[top[0].get<int>()] == Approx(top[1].get<double>()).margin(margins.logit).epsilon(0));
    }
    double sum = 0, squares = 0;
    std::vector<double> with_signs(last.at("signed").size());
    for (std::uint64_t token = 0; token < static_cast<std::uint64_t>(logits.extent(1)); ++token) {
      const double logit = double{row[token]};
      sum += logit;
      squares += logit * logit;
      for (std::size_t k = 0; k < with_signs.size(); ++k) {
        with_signs[k] += (token * 2654435761u) >> (20 + k) & 1 ? -logit : logit;
      }
    }
    CHECK(sum == Approx(last.at("sum").get<double>()).margin(margins.sum).epsilon(0));
    CHECK(squares == Approx(last.at("sum_squares").get<double>()).epsilon(margins.squares));
    const double allowed = 1.13 * std::sqrt(static_cast<double>(logits.extent(1))) * margins.logit;
    for (std::size_t k = 0; k < with_signs.size(); ++k) {
      CHECK(with_signs[k] == Approx(last.at("signed")[k].get<double>()).margin(allowed).epsilon(0));
    }
  }
}

/// Greedy texts of the named cases, plainly and speculatively.
inline void check_greedy_texts(const AnyModel& model, const Json& cases, const std::set<std::string>& names) {
  const Sampling sampling{.max_new_tokens = 64, .temperature = 0.0f, .ignore_end_tokens = true};
  AutoregressiveDecoder plain{model};
  SpeculativeDecoder speculative{Lookup{}, model, {.draft_tokens = 4}};
  for (const Json& entry : cases) {
    const std::string name = entry.at("name");
    if (!names.contains(name)) continue;
    CAPTURE(name);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    const auto generate = [&](auto& decoder) {
      std::vector<Token> made;
      decoder.generate(std::vector<Token>(ids), sampling, [&](Token token) { made.push_back(token); });
      return made;
    };
    const auto expected = entry.at("greedy").at("ids").get<std::vector<Token>>();
    CHECK(generate(plain) == expected);
    CHECK(generate(speculative) == expected);
  }
}

}  // namespace slm::testing
