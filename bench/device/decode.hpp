// Whole models: the time of a decode step and its share of the measured bandwidth, the cost of verifying n tokens,
// prefill, and steps of many sequences.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/harness.hpp"
#include "bench/device/random_weights.hpp"
#include "bench/device/sequence_bytes.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"

namespace slm::bench {

template <class Target>
class DecodeTable {
 public:
  DecodeTable(Target& target, Harness& harness, const MeasureOptions& options)
      : target_(target),
        harness_(harness),
        quick_(options.quick),
        sequences_(options.sequences),
        before_(options.positions != 0 ? options.positions : Target::prompt),
        cache_format_(options.cache_format.value_or(Backend::kv_formats[0])) {}

  void add(const Subject& subject) {
    if (!sequences_.empty()) return add_batches(subject);
    const std::vector<int> row_counts = Target::emulated ? std::vector<int>{1, 2, 3}
                                        : quick_         ? std::vector<int>{1, 2, 5, 9}
                                                         : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int samples = samples_of(subject);
    for (const int rows : row_counts) {
      harness_.add("decode", subject, rows, samples, subject.bytes() * samples,
                   [this, subject](benchmark::State& state, Result& result) { decode(state, subject, result); });
    }
    const int prefills = Target::emulated ? 1 : quick_ ? 1 : 5;
    harness_.add("prefill", subject, Target::prefill, prefills, subject.bytes() * 10 * prefills,
                 [this, subject](benchmark::State& state, Result& result) { prefill(state, subject, result); });
  }

 private:
  using Backend = typename Target::Backend;

  static constexpr int batch_prompt = Target::emulated ? Target::prompt : 128;

  int samples_of(const Subject& subject) const {
    return Target::emulated ? 1 : quick_ ? 5 : subject.bytes() < 3e9 ? 25 : 9;
  }

  void add_batches(const Subject& subject) {
    const int samples = samples_of(subject);
    for (const int count : sequences_) {
      harness_.add("batch", subject, count, samples, subject.bytes() * (7 * samples + 10 * count),
                   [this, subject](benchmark::State& state, Result& result) { batch(state, subject, result); });
    }
  }

  /// n tokens with all their logits, alternating with one-token steps: v(n) = time(n) / time(1).
  void decode(benchmark::State& state, const Subject& subject, Result& result) {
    Session model(this->model(subject));
    const std::vector<Token> tokens = some_tokens(before_ + result.rows, subject.shape.vocab);
    const std::span<const Token> all(tokens);
    model.forward(all.first(static_cast<std::size_t>(before_)), 0);
    const auto step = [&](int count) {
      model.forward(all.subspan(static_cast<std::size_t>(before_), static_cast<std::size_t>(count)), count);
      model.truncate(before_);
    };
    for (int i = 0; i < 3; ++i) step(result.rows), step(1);  // the second step records a graph, the third replays it
    ProbedSamples samples;
    std::vector<double> ratios;
    for (auto _ : state) {
      state.SetIterationTime(samples.measure(target_.probe(), [&] { step(result.rows); }));
      const double together = seconds_of_second([&] { step(result.rows); });
      ratios.push_back(together / seconds_of_second([&] { step(1); }));
    }
    conclude(result, samples, step_bytes(subject, model.info(), 1, before_, result.rows));
    result.numbers["positions"] = before_;
    result.numbers["tokens_per_second"] = result.rows / result.seconds;
    result.numbers["times_one_row"] = result.rows == 1 ? 1 : median(ratios);
  }

  void prefill(benchmark::State& state, const Subject& subject, Result& result) {
    Session model(this->model(subject));
    const std::vector<Token> tokens = some_tokens(Target::prefill, subject.shape.vocab);
    const auto read = [&] {
      model.truncate(0);
      model.forward(tokens, 1);
    };
    read();
    ProbedSamples samples;
    for (auto _ : state) state.SetIterationTime(samples.measure(target_.probe(), read));
    conclude(result, samples, static_cast<double>(model.info().step_bytes));
    result.numbers["tokens_per_second"] = result.rows / result.seconds;
    result.numbers["flop_per_second"] = 2 * subject.layer_products() * result.rows / result.seconds;
  }

  /// n sequences with one token each, alternating with n tokens of one sequence and with one token. The products are
  /// the same, so the difference is attention and cache access.
  void batch(benchmark::State& state, const Subject& subject, Result& result) {
    const AnyModel& model = this->model(subject);
    const auto count = static_cast<std::size_t>(result.rows);
    const std::vector<Token> tokens = some_tokens(batch_prompt + result.rows, subject.shape.vocab);
    const std::span<const Token> prompt = std::span(tokens).first(batch_prompt);
    const std::span<const Token> more = std::span(tokens).subspan(batch_prompt);
    std::vector<Sequence> sequences;
    Batch asked;
    for (std::size_t i = 0; i < count; ++i) {
      sequences.push_back(model.sequence());
      asked.clear();
      asked.add(sequences.back(), prompt);
      model.forward(asked);
    }
    const auto forward = [&](std::size_t texts, int rows) {
      asked.clear();
      for (std::size_t i = 0; i < texts; ++i) {
        asked.add(sequences[i], more.subspan(rows == 1 ? i : 0, static_cast<std::size_t>(rows)),
                  {.result = RowResult::logits, .rows = rows});
      }
      model.forward(asked);
      for (std::size_t i = 0; i < texts; ++i) sequences[i].truncate(batch_prompt);
    };
    const auto seconds_of = [&](std::size_t texts, int rows) {
      return seconds_of_second([&] { forward(texts, rows); });
    };
    for (int i = 0; i < 3; ++i) forward(count, 1), forward(1, result.rows), forward(1, 1);
    ProbedSamples samples;
    std::vector<double> verifying, of_rows, of_one;
    for (auto _ : state) {
      state.SetIterationTime(samples.measure(target_.probe(), [&] { forward(count, 1); }));
      const double together = seconds_of(count, 1), rows = seconds_of(1, result.rows), one = seconds_of(1, 1);
      verifying.push_back(rows / one);
      of_rows.push_back(rows / together);
      of_one.push_back(together / one);
    }
    conclude(result, samples, step_bytes(subject, model.info(), result.rows, batch_prompt + 1, 1));
    result.numbers["tokens_per_second"] = result.rows / result.seconds;
    result.numbers["times_one_row"] = median(verifying);
    result.numbers["times_one_sequence"] = median(of_one);
    result.numbers["share_of_rows"] = median(of_rows);
  }

  /// The time of an action that follows the same action, as decode steps do. A probe or a step of another kind leaves
  /// other data in the caches.
  template <class Action>
  static double seconds_of_second(Action&& action) {
    action();
    const double start = seconds();
    action();
    return seconds() - start;
  }

  /// The minimum number of bytes that a step with this many rows of each sequence moves.
  double step_bytes(const Subject& subject, const ModelInfo& info, int sequences, int positions, int rows) const {
    return static_cast<double>(info.step_bytes) + sequences * sequence_bytes(layout(subject), positions, rows);
  }

  KvLayout layout(const Subject& subject) const { return {subject.shape, subject.settings, cache_format_}; }

  /// Only one model is in memory. It is created when the first benchmark of its subject runs.
  AnyModel& model(const Subject& subject) {
    const std::string wanted = subject.model + " " + subject.format;
    if (model_ && name_ == wanted) return *model_;
    model_.reset();
    files_.reset();
    const int most = sequences_.empty() ? 0 : *std::max_element(sequences_.begin(), sequences_.end());
    // A sequence allocates whole pages, and one page for its new tokens.
    const double cache = static_cast<double>(layout(subject).bytes_of(batch_prompt + page_positions));
    const double needed = subject.bytes() * 1.1 + most * cache;
    const double free = target_.memory_free();
    if (needed > free) {
      throw Error("bench.no-memory",
                  text(wanted, " needs ", shown(needed / 1e9), " GB, and ", shown(free / 1e9), " GB are free"),
                  "Exclude it with --model and --format, or free memory");
    }
    const int context = std::max({Target::prefill + 16, batch_prompt + most, before_ + 16});
    const LoadOptions options{.context = context, .cache_format = cache_format_};
    Backend device = target_.open(subject.format);
    if (subject.file.empty()) files_.emplace(subject, context, !target_.copies_weights(subject));
    const Dynamic shape{subject.shape};
    if (!files_) {
      model_ = load(subject.file, device, options);
    } else if (subject.int4()) {
      model_.emplace(Model<Dynamic, AwqInt4<>, Backend>(shape, files_->checkpoint(), device, options));
    } else {
      model_.emplace(Model<Dynamic, Bf16, Backend>(shape, files_->checkpoint(), device, options));
    }
    name_ = wanted;
    return *model_;
  }

  static std::vector<Token> some_tokens(int count, int vocab) {
    std::vector<Token> tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<Token>(i * 7919 % static_cast<std::size_t>(vocab));
    }
    return tokens;
  }

  Target& target_;
  Harness& harness_;
  bool quick_;
  std::vector<int> sequences_;  // sequences per batch; empty: one sequence with increasing tokens per step
  int before_;                  // tokens before a step
  KvFormat cache_format_;
  std::optional<RandomCheckpoint> files_;  // before the model, which refers to its bytes
  std::optional<AnyModel> model_;
  std::string name_;
};

}  // namespace slm::bench
