// A row of results.jsonl: one measurement. docs/benchmarks.md describes the fields.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/stats.hpp"
#include "slm/io/json.hpp"

namespace slm::bench::speculative {

/// Identifies a measurement.
struct Key {
  std::string engine = "slm";
  std::string setup, sampling, kind, draft_length;
  int repeat = 0;
  std::string task;

  auto operator<=>(const Key&) const = default;
};

/// Timed steps of both models, taken between the tasks.
struct Probe {
  std::vector<std::pair<int, double>> target;  // tokens of the step, seconds
  double draft = 0;                            // a step of one token
};

struct Row {
  Key key;
  std::int64_t prompt_tokens = 0, new_tokens = 0;
  std::vector<Token> new_ids;
  std::string completion;
  std::string finish_reason;
  double total = 0, prompt = 0, draft = 0, verify = 0, choose = 0;  // seconds
  std::int64_t drafted = 0, evaluated = 0, accepted = 0, rounds = 0;
  std::vector<std::int64_t> drafted_at_depth, accepted_at_depth;
  Probe probe;

  void take(const Stats& stats) {
    prompt_tokens = stats.prompt_tokens;
    new_tokens = stats.emitted;
    finish_reason = name_of(stats.finish_reason);
    total = stats.total_seconds;
    prompt = stats.prefill_seconds();
    draft = stats.draft_seconds;
    verify = stats.verify_seconds;
    choose = stats.sample_seconds;
    drafted = stats.drafted;
    evaluated = stats.evaluated;
    accepted = stats.accepted;
    rounds = stats.rounds;
    const auto used = [&](std::vector<std::int64_t> counts) {
      while (!counts.empty() && counts.back() == 0) counts.pop_back();
      return counts;
    };
    drafted_at_depth = used(stats.drafted_at_depth);
    accepted_at_depth = stats.accepted_at_depth;
    accepted_at_depth.resize(drafted_at_depth.size());
  }
};

inline Json to_json(const Row& row) {
  const Key& key = row.key;
  Json json = {{"engine", key.engine},
               {"setup", key.setup},
               {"sampling", key.sampling},
               {"kind", key.kind},
               {"draft_length", key.draft_length},
               {"repeat", key.repeat},
               {"task_id", key.task},
               {"prompt_tokens", row.prompt_tokens},
               {"new_tokens", row.new_tokens},
               {"new_ids", row.new_ids},
               {"completion", row.completion},
               {"finish_reason", row.finish_reason},
               {"seconds",
                {{"total", row.total},
                 {"prompt", row.prompt},
                 {"draft", row.draft},
                 {"verify", row.verify},
                 {"choose", row.choose}}},
               {"drafted", row.drafted},
               {"evaluated", row.evaluated},
               {"accepted", row.accepted},
               {"rounds", row.rounds},
               {"drafted_at_depth", row.drafted_at_depth},
               {"accepted_at_depth", row.accepted_at_depth}};
  if (!row.probe.target.empty()) json["probe"] = {{"target", row.probe.target}, {"draft", row.probe.draft}};
  return json;
}

namespace detail {

/// Reads a row and validates its values.
class RowFields {
 public:
  explicit RowFields(const Json& json) : json_(json) {
    if (!json.is_object()) throw wrong("that is not a JSON object");
  }

  const Json* find(const char* name) const {
    const auto field = json_.find(name);
    return field == json_.end() || field->is_null() ? nullptr : &*field;
  }
  const Json& at(const char* name) const {
    const Json* field = find(name);
    if (field == nullptr) throw wrong(text("without '", name, "'"));
    return *field;
  }
  std::string string(const char* name) const {
    if (!at(name).is_string()) throw wrong(text("with a '", name, "' that is not a string"));
    return at(name).get<std::string>();
  }
  static bool is_count(const Json& value) { return is_index(value, std::uint64_t{1} << 40); }
  std::int64_t count(const char* name) const {
    if (!is_count(at(name))) throw wrong(text("with a '", name, "' that is not a count"));
    return at(name).get<std::int64_t>();
  }
  template <class Number>
  std::vector<Number> counts(const char* name) const {
    std::vector<Number> values;
    if (!at(name).is_array()) throw wrong(text("with a '", name, "' that is not a list"));
    for (const Json& value : at(name)) {
      if (!is_count(value) || value.get<std::int64_t>() > std::numeric_limits<Number>::max()) {
        throw wrong(text("with a '", name, "' that contains other values than counts"));
      }
      values.push_back(value.get<Number>());
    }
    return values;
  }
  static double seconds(const Json& value) {
    const double found = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(found) || found < 0) throw wrong("with a time that is not a number of seconds");
    return found;
  }

  static Error wrong(const std::string& what) {
    return Error("bench.bad-row", text("a measurement ", what), "See docs/benchmarks.md for the fields of a row");
  }

 private:
  const Json& json_;
};

}  // namespace detail

/// Throws bench.bad-row.
inline Row row_of(const Json& json) {
  const detail::RowFields fields(json);
  Row row;
  row.key = {fields.string("engine"),       fields.string("setup"),
             fields.string("sampling"),     fields.string("kind"),
             fields.string("draft_length"), static_cast<int>(std::min<std::int64_t>(fields.count("repeat"), 1 << 20)),
             fields.string("task_id")};
  row.prompt_tokens = fields.count("prompt_tokens");
  row.new_tokens = fields.count("new_tokens");
  row.new_ids = fields.counts<Token>("new_ids");
  row.completion = fields.string("completion");
  if (fields.find("finish_reason") != nullptr) row.finish_reason = fields.string("finish_reason");
  const detail::RowFields seconds(fields.at("seconds"));
  row.total = detail::RowFields::seconds(seconds.at("total"));
  for (const auto& [name, place] : {std::pair{"prompt", &Row::prompt}, std::pair{"draft", &Row::draft},
                                    std::pair{"verify", &Row::verify}, std::pair{"choose", &Row::choose}}) {
    if (seconds.find(name) != nullptr) row.*place = detail::RowFields::seconds(seconds.at(name));
  }
  const bool speculative = row.key.kind == "speculative";
  for (const auto& [name, place, needed] :
       {std::tuple{"drafted", &Row::drafted, speculative}, std::tuple{"accepted", &Row::accepted, speculative},
        std::tuple{"rounds", &Row::rounds, speculative}, std::tuple{"evaluated", &Row::evaluated, false}}) {
    if (needed || fields.find(name) != nullptr) row.*place = fields.count(name);
  }
  if (fields.find("drafted_at_depth") != nullptr) {
    row.drafted_at_depth = fields.counts<std::int64_t>("drafted_at_depth");
    row.accepted_at_depth = fields.counts<std::int64_t>("accepted_at_depth");
  }
  if (row.drafted_at_depth.size() != row.accepted_at_depth.size()) {
    throw detail::RowFields::wrong("whose two lists by depth differ in length");
  }
  if (const Json* probe = fields.find("probe")) {
    const detail::RowFields steps(*probe);
    row.probe.draft = detail::RowFields::seconds(steps.at("draft"));
    for (const Json& step : steps.at("target")) {
      if (!step.is_array() || step.size() != 2 || !is_index(step[0], 1 << 20)) {
        throw detail::RowFields::wrong("with a probe that is not a list of [tokens, seconds]");
      }
      row.probe.target.emplace_back(step[0].get<int>(), detail::RowFields::seconds(step[1]));
    }
  }
  return row;
}

}  // namespace slm::bench::speculative
