// The summary of a run: one configuration per setting, plain against speculative.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bench/command/speculative/cost_model.hpp"
#include "bench/command/speculative/row.hpp"
#include "bench/samples.hpp"

namespace slm::bench::speculative {

/// Sums over rows, and the figures of docs/benchmarks.md: each sum divided once.
struct Tally {
  std::int64_t tokens = 0, drafted = 0, evaluated = 0, accepted = 0, rounds = 0;
  double total = 0, prompt = 0, draft = 0, verify = 0, choose = 0;  // seconds
  std::vector<std::int64_t> drafted_at_depth, accepted_at_depth;

  void add(const Row& row) {
    tokens += row.new_tokens;
    drafted += row.drafted;
    evaluated += row.evaluated;
    accepted += row.accepted;
    rounds += row.rounds;
    total += row.total;
    prompt += row.prompt;
    draft += row.draft;
    verify += row.verify;
    choose += row.choose;
    if (row.drafted_at_depth.size() > drafted_at_depth.size()) {
      drafted_at_depth.resize(row.drafted_at_depth.size());
      accepted_at_depth.resize(row.drafted_at_depth.size());
    }
    for (std::size_t i = 0; i < row.drafted_at_depth.size(); ++i) {
      drafted_at_depth[i] += row.drafted_at_depth[i];
      accepted_at_depth[i] += row.accepted_at_depth[i];
    }
  }

  /// AMD's script subtracts one token per target step. A text that ends with an accepted token therefore counts one
  /// more accepted token.
  double acceptance() const { return ratio(tokens - rounds, drafted); }
  double acceptance_per_token() const { return ratio(accepted, evaluated); }
  double tokens_per_target_step() const { return ratio(tokens, rounds); }
  double mean_draft_length() const { return ratio(drafted, rounds); }
  double throughput() const { return ratio(tokens, total); }
  double decode_throughput() const { return ratio(tokens, total - prompt); }

 private:
  template <class Part, class Whole>
  static double ratio(Part part, Whole whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

/// All rows of one setting that have both kinds. Rows without a counterpart are not counted.
struct Configuration {
  std::string engine, setup, sampling, draft_length;
  std::vector<const Row*> plain, speculative;  // pairs
};

/// In the order of their first rows.
inline std::vector<Configuration> configurations_of(std::span<const Row> rows) {
  std::map<Key, const Row*> plain;
  for (const Row& row : rows) {
    if (row.key.kind == "plain") plain[row.key] = &row;
  }
  std::vector<Configuration> made;
  for (const Row& row : rows) {
    if (row.key.kind != "speculative") continue;
    Key other = row.key;
    other.kind = "plain";
    other.draft_length = "0";
    const auto found = plain.find(other);
    if (found == plain.end()) continue;
    const Key& key = row.key;
    auto place = std::find_if(made.begin(), made.end(), [&](const Configuration& configuration) {
      return std::tie(configuration.engine, configuration.setup, configuration.sampling, configuration.draft_length) ==
             std::tie(key.engine, key.setup, key.sampling, key.draft_length);
    });
    if (place == made.end())
      place = made.insert(made.end(), {key.engine, key.setup, key.sampling, key.draft_length, {}, {}});
    place->plain.push_back(found->second);
    place->speculative.push_back(&row);
  }
  return made;
}

/// Median, least and most over the repeats.
inline Json spread(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"median", median(values)}, {"least", *least}, {"most", *most}};
}

inline Json summary_of(const Configuration& configuration, std::span<const Probe> probes) {
  Tally plain, fast;
  std::map<int, std::pair<Tally, Tally>> repeats;
  double logarithms = 0;
  std::size_t equal = 0;
  std::string first_difference;
  for (std::size_t i = 0; i < configuration.plain.size(); ++i) {
    const Row& slow_row = *configuration.plain[i];
    const Row& fast_row = *configuration.speculative[i];
    auto& [slow_repeat, fast_repeat] = repeats[slow_row.key.repeat];
    for (Tally* tally : {&plain, &slow_repeat}) tally->add(slow_row);
    for (Tally* tally : {&fast, &fast_repeat}) tally->add(fast_row);
    logarithms += std::log(static_cast<double>(std::max<std::int64_t>(fast_row.new_tokens, 1)) / fast_row.total) -
                  std::log(static_cast<double>(std::max<std::int64_t>(slow_row.new_tokens, 1)) / slow_row.total);
    if (slow_row.new_ids == fast_row.new_ids) {
      ++equal;
    } else if (first_difference.empty()) {
      first_difference = slow_row.key.task;
    }
  }
  std::vector<double> plain_rates, rates, speedups, decode_speedups;
  for (const auto& [repeat, tallies] : repeats) {
    const auto& [slow, quick] = tallies;
    plain_rates.push_back(slow.throughput());
    rates.push_back(quick.throughput());
    speedups.push_back(slow.throughput() > 0 ? quick.throughput() / slow.throughput() : 0);
    decode_speedups.push_back(slow.decode_throughput() > 0 ? quick.decode_throughput() / slow.decode_throughput() : 0);
  }
  std::vector<double> by_position;
  for (std::size_t i = 0; i < fast.drafted_at_depth.size(); ++i) {
    by_position.push_back(static_cast<double>(fast.accepted_at_depth[i]) /
                          static_cast<double>(std::max<std::int64_t>(fast.drafted_at_depth[i], 1)));
  }

  Json json = {
      {"engine", configuration.engine},
      {"setup", configuration.setup},
      {"sampling", configuration.sampling},
      {"draft_length", configuration.draft_length},
      {"pairs", configuration.plain.size()},
      {"repeats", repeats.size()},
      {"new_tokens", {{"plain", plain.tokens}, {"speculative", fast.tokens}}},
      {"acceptance", fast.acceptance()},
      {"acceptance_per_token", fast.evaluated > 0 ? Json(fast.acceptance_per_token()) : Json()},
      {"tokens_per_target_step", fast.tokens_per_target_step()},
      {"mean_draft_length", fast.mean_draft_length()},
      {"acceptance_by_position", by_position},
      {"drafted_by_position", fast.drafted_at_depth},
      {"tokens_per_second", {{"plain", spread(plain_rates)}, {"speculative", spread(rates)}}},
      {"speedup", spread(speedups)},
      {"decode_speedup", spread(decode_speedups)},
      {"speedup_geometric_mean_of_tasks", std::exp(logarithms / static_cast<double>(configuration.plain.size()))},
      {"seconds", Json::object()},
      {"identical", {{"compared", configuration.plain.size()}, {"equal", equal}}},
      {"predicted_speedup", nullptr},
      {"predicted_speedup_from_counts", nullptr},
      {"pass_at_1", nullptr}};
  if (!first_difference.empty()) json["identical"]["first_difference"] = first_difference;
  for (const auto& [kind, tally] : {std::pair{"plain", &plain}, std::pair{"speculative", &fast}}) {
    json["seconds"][kind] = {{"total", tally->total},
                             {"prompt", tally->prompt},
                             {"draft", tally->draft},
                             {"verify", tally->verify},
                             {"choose", tally->choose}};
  }
  if (configuration.engine != "slm") return json;

  const Costs costs(probes, plain.tokens > 0 ? plain.choose / static_cast<double>(plain.tokens) : 0);
  if (!costs.known()) return json;
  const auto rounds = rounds_by_draft(fast.rounds, fast.drafted_at_depth);
  json["predicted_speedup"] = costs.predicted(rounds, fast.acceptance_per_token());
  json["predicted_speedup_from_counts"] = costs.predicted_from_counts(rounds, fast.tokens);
  return json;
}

/// All configurations and the costs of single steps.
inline Json summary_of(std::span<const Row> rows) {
  std::vector<Probe> probes;
  for (const Row& row : rows) {
    if (!row.probe.target.empty()) probes.push_back(row.probe);
  }
  Json json = {{"configurations", Json::array()}, {"costs", nullptr}};
  for (const Configuration& configuration : configurations_of(rows)) {
    json["configurations"].push_back(summary_of(configuration, probes));
  }
  if (const Costs costs(probes, 0); costs.known()) {
    json["costs"] = {{"probes", probes.size()},
                     {"target_step_seconds", costs.plain_seconds()},
                     {"c", costs.c()},
                     {"v", std::vector<std::pair<int, double>>(costs.measured().begin(), costs.measured().end())}};
  }
  return json;
}

}  // namespace slm::bench::speculative
