// Runs every task plainly and speculatively, alternating, with one row for each. Timed steps of both models run between
// them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/command/speculative/run_folder.hpp"
#include "bench/command/speculative/settings.hpp"
#include "bench/samples.hpp"
#include "slm/speculative.hpp"

namespace slm::bench::speculative {

/// A task's prompt as tokens.
struct Prompt {
  std::string task;
  std::vector<Token> ids;
  std::string text;
};

/// Times steps of both models after the first half of the text, several times if that takes less than a second. The
/// draft runs four steps in a row, as in a round: its weights stay in the CPU's caches from one step to the next.
inline Probe take_probe(const AnyModel& target_model, const AnyModel& draft_model, std::span<const Token> history,
                        std::size_t middle) {
  constexpr std::array rows = {1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 11, 1, 13, 17, 25, 33, 65};
  using Text = Session<AnyModel>;
  const auto start = [&](Text& model, int left) {
    std::vector<Token> read(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(middle));
    read.resize(std::min(read.size(), static_cast<std::size_t>(std::max(model.info().context - left, 0))));
    for (Token& token : read) token = token < model.info().vocab ? token : 0;
    if (!read.empty()) model.forward(read, 0);
  };
  const auto time = [](Text& model, int tokens) {
    const std::vector<Token> step(static_cast<std::size_t>(tokens), 0);
    const int length = model.length();
    const double began = seconds();
    model.forward(step, tokens);
    const double took = seconds() - began;
    model.truncate(length);
    return took;
  };
  constexpr int most_passes = 5, draft_steps = 4;
  const double began = seconds();
  Probe probe;
  Text target(target_model), draft(draft_model);
  start(target, rows.back());
  start(draft, 1);
  int passes = 0;
  for (; passes < most_passes && (passes == 0 || seconds() - began < 1); ++passes) {
    for (const int tokens : rows) {
      if (target.length() + tokens > target.info().context) continue;
      probe.target.emplace_back(tokens, time(target, tokens));
    }
    for (int step = 0; step < draft_steps; ++step) probe.draft += time(draft, 1);
  }
  probe.draft /= passes * draft_steps;
  return probe;
}

/// Runs a task of a setting on another engine, with this sampling, in this repeat.
using Beside = std::function<void(const Setting&, const Prompt&, const Sampling&, int)>;

class Measurement {
 public:
  /// Throws decode.different-tokenizers, decode.unknown-draft-length.
  Measurement(const AnyModel& target, const AnyModel& draft, const Tokenizer& tokenizer, std::vector<Prompt> prompts,
              std::vector<Setting> settings, int repeats, int max_new_tokens)
      : target_(target),
        draft_(draft),
        tokenizer_(tokenizer),
        prompts_(std::move(prompts)),
        settings_(std::move(settings)),
        repeats_(repeats),
        max_new_tokens_(max_new_tokens),
        plain_(target) {
    make_decoders();
  }

  /// The number of slm's rows in the whole run.
  std::size_t rows() const {
    std::size_t count = 0;
    for (const Setting& setting : settings_) count += setting.tasks * (1 + setting.draft_lengths.size());
    return count * static_cast<std::size_t>(repeats_);
  }

  /// Measures the rows that the folder lacks. progress: called after each row. stopped: whether to stop; an unfinished
  /// row is dropped. beside: called after each task of each setting, for other engines. Throws the models' exceptions
  /// and bench.draft-failed.
  void run(RunFolder& folder, const std::function<void(std::size_t)>& progress, const std::function<bool()>& stopped,
           const Beside& beside = {}) {
    if (folder.rows_of("slm") < rows()) warm_up(stopped);
    std::size_t done = 0;
    for (int repeat = 0; repeat < repeats_; ++repeat) {
      if (repeat > 0) make_decoders();  // so that lookup does not find the answers of the last repeat
      for (std::size_t task = 0; task < prompts_.size(); ++task) {
        for (const Setting& setting : settings_) {
          if (task >= setting.tasks) continue;
          // Each kind runs first in half of the tasks.
          const std::size_t ways = 1 + setting.draft_lengths.size();
          for (std::size_t i = 0; i < ways && !stopped(); ++i) {
            const std::size_t way = (i + task + static_cast<std::size_t>(repeat)) % ways;
            measure(folder, setting, way, task, repeat, stopped);
            progress(++done);
          }
          if (beside && !stopped()) beside(setting, prompts_[task], setting.sampling_of(max_new_tokens_, task), repeat);
        }
      }
    }
  }

 private:
  using Plain = AutoregressiveDecoder<>;
  using Decoder = SpeculativeDecoder<>;

  void make_decoders() {
    decoders_.clear();
    for (const Setting& setting : settings_) {
      for (const std::string& name : setting.draft_lengths) {
        Speculation speculation;
        speculation.draft_length = draft_length::parse(name);
        Drafter drafter{draft_};
        if (setting.setup == "best") drafter.add(Lookup{});
        decoders_[&setting].push_back(std::make_unique<Decoder>(std::move(drafter), target_, std::move(speculation)));
      }
    }
  }

  /// AMD's script also generates 30 tokens, but without the draft.
  void warm_up(const std::function<bool()>& stopped) {
    const Sampling sampling{.max_new_tokens = 30, .temperature = 0.0f};
    const auto go_on = [&](Token) { return !stopped(); };
    plain_.generate(prompts_.front().ids, sampling, go_on);
    Decoder{draft_, target_}.generate(prompts_.front().ids, sampling, go_on);
    take_probe(target_, draft_, prompts_.front().ids, prompts_.front().ids.size());
  }

  /// way: 0 is plain, then the draft lengths.
  void measure(RunFolder& folder, const Setting& setting, std::size_t way, std::size_t task, int repeat,
               const std::function<bool()>& stopped) {
    const Prompt& prompt = prompts_[task];
    Row row;
    row.key = {"slm",
               setting.setup,
               setting.sampling,
               way == 0 ? "plain" : "speculative",
               way == 0 ? "0" : setting.draft_lengths[way - 1],
               repeat,
               prompt.task};
    if (folder.has(row.key)) return;

    std::string written;
    TextStream stream(
        tokenizer_, prompt.ids, [&](std::string_view piece) { written += piece; }, setting.stops);
    const auto sink = [&](Token token) {
      row.new_ids.push_back(token);
      return !stopped() && stream(token);
    };
    const Sampling sampling = setting.sampling_of(max_new_tokens_, task);
    const Stats stats = way == 0 ? plain_.generate(prompt.ids, sampling, sink)
                                 : decoders_.at(&setting)[way - 1]->generate(prompt.ids, sampling, sink);
    stream.finish();
    if (stopped()) return;
    if (!stats.disabled_reason.empty()) {
      throw Error("bench.draft-failed", text("the draft stopped working at ", prompt.task, ": ", stats.disabled_reason),
                  "Check the draft's weights and its device");
    }
    row.take(stats);
    if (stream.stopped()) row.finish_reason = "stop_string";
    row.completion = completion_of(setting.setup, written);
    if (way == 0 && &setting == &settings_.front()) {
      row.probe = take_probe(target_, draft_, plain_.history(), prompt.ids.size() + row.new_ids.size() / 2);
    }
    folder.append(row);
  }

  const AnyModel& target_;
  const AnyModel& draft_;
  const Tokenizer& tokenizer_;
  std::vector<Prompt> prompts_;
  std::vector<Setting> settings_;
  int repeats_;
  int max_new_tokens_;
  Plain plain_;
  std::map<const Setting*, std::vector<std::unique_ptr<Decoder>>> decoders_;  // [setting][draft length]
};

}  // namespace slm::bench::speculative
