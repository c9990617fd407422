// Whole models: the time of a decode step and its share of the bandwidth measured beside it, what verifying n tokens
// costs in units of one, and prefill.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/device/harness.hpp"
#include "bench/device/random_weights.hpp"
#include "slm/model/any_model.hpp"
#include "slm/model/model.hpp"
#include "slm/model/session.hpp"

namespace slm::bench {

template <class Target>
class DecodeTable {
 public:
  DecodeTable(Target& target, Harness& harness, bool quick) : target_(target), harness_(harness), quick_(quick) {}

  void add(const Subject& subject) {
    const std::vector<int> row_counts = Target::emulated ? std::vector<int>{1, 2, 3}
                                        : quick_         ? std::vector<int>{1, 2, 5, 9}
                                                         : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int samples = Target::emulated ? 1 : quick_ ? 5 : subject.bytes() < 3e9 ? 25 : 9;
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

  /// n tokens with all their logits, beside one-token steps in the same run: v(n) = time(n) / time(1).
  void decode(benchmark::State& state, const Subject& subject, Result& result) {
    Session model(this->model(subject));
    const std::vector<Token> tokens = some_tokens(Target::prompt + result.rows, subject.shape.vocab);
    const std::span<const Token> all(tokens);
    model.forward(all.first(Target::prompt), 0);
    const auto step = [&](int count) {
      model.forward(all.subspan(Target::prompt, static_cast<std::size_t>(count)), count);
      model.truncate(Target::prompt);
    };
    for (int i = 0; i < 3; ++i) step(result.rows), step(1);  // the second records a graph, the third replays it
    ProbedSamples samples;
    std::vector<double> ratios;
    for (auto _ : state) {
      const double together = samples.measure(target_.probe(), [&] { step(result.rows); });
      state.SetIterationTime(together);
      const double start = seconds();
      step(1);
      ratios.push_back(together / (seconds() - start));
    }
    conclude(result, samples, static_cast<double>(model.info().step_bytes));
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

  /// One model is in memory at a time, made when the first benchmark of its subject runs.
  AnyModel& model(const Subject& subject) {
    const std::string wanted = subject.model + " " + subject.format;
    if (model_ && name_ == wanted) return *model_;
    model_.reset();
    files_.reset();
    const double needed = subject.bytes() * 1.1, free = target_.memory_free();
    if (needed > free) {
      throw Error("bench.no-memory",
                  text(wanted, " needs ", shown(needed / 1e9), " GB, and ", shown(free / 1e9), " GB are free"),
                  "Leave it out with --model and --format, or free memory");
    }
    constexpr int context = Target::prefill + 16;
    files_.emplace(subject, context, !target_.copies_weights(subject));
    const Dynamic shape{subject.shape};
    const LoadOptions options{.context = context};
    Backend device = target_.open(subject.format);
    if (subject.int4()) {
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
  std::optional<RandomCheckpoint> files_;  // before the model, which refers to its bytes
  std::optional<AnyModel> model_;
  std::string name_;
};

}  // namespace slm::bench
