// Other engines in the same run. Each task of the published setup runs there directly after it ran here.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/baseline/baseline.hpp"
#include "bench/command/speculative/measure.hpp"
#include "bench/command/speculative/run_folder.hpp"
#include "bench/command/speculative/settings.hpp"
#include "slm/speculative.hpp"

namespace slm::bench::speculative {

/// The entry of an engine in engines.json.
inline Json to_json(const BaselineEngine& engine) {
  return {{"version", engine.version},
          {"threads", engine.threads},
          {"dtype", engine.dtype},
          {"speculation", engine.speculation ? Json(*engine.speculation) : Json()},
          {"notes", engine.notes}};
}

/// The engines whose measurements a folder holds: name -> entry.
inline Json read_engines(const std::filesystem::path& folder) {
  const auto path = folder / "engines.json";
  return std::filesystem::exists(path) ? read_json_object(path) : Json::object();
}

class Baselines {
 public:
  /// Starts the engines and warms them up on a prompt. Throws their exceptions, and bench.other-engine when the folder
  /// has measurements of another version.
  Baselines(const std::vector<std::string>& names, const BaselineSetup& setup, std::vector<Token> end_tokens,
            const Tokenizer& tokenizer, const Prompt& prompt)
      : folder_(setup.folder), end_tokens_(std::move(end_tokens)), tokenizer_(tokenizer) {
    Json described = read_engines(folder_);
    for (const std::string& name : names) {
      running_.push_back(std::make_unique<Baseline>(name, setup));
      const BaselineEngine& engine = running_.back()->engine();
      const Json found = described.value(engine.name, Json());
      if (const auto difference = first_difference(found, to_json(engine), engine.name);
          difference && !found.is_null()) {
        throw Error("bench.other-engine",
                    text("the folder has measurements of another ", engine.name, ": ", *difference),
                    "Use another folder with --out");
      }
      described[engine.name] = to_json(engine);
      BaselineTask first{prompt.ids, end_tokens_, {.max_new_tokens = 30, .temperature = 0.0f}, {}};
      running_.back()->run(first);
      if (!engine.speculation) continue;
      first.draft_length = "heuristic";
      running_.back()->run(first);
    }
    if (!names.empty()) write_text_file(folder_ / "engines.json", json_text(described, 1) + "\n");
  }

  /// Runs a task of this setting on every engine, plainly and speculatively. An engine that fails is not used again.
  void measure(RunFolder& results, const Setting& setting, const Prompt& prompt, const Sampling& sampling, int repeat) {
    if (setting.setup != "published") return;
    for (std::unique_ptr<Baseline>& engine : running_) {
      try {
        measure(*engine, results, setting, prompt, sampling, repeat);
      } catch (const Error& fault) {
        troubles_.push_back(text(engine->engine().name, " was stopped at ", prompt.task, ": ", fault.what()));
        engine.reset();
      }
    }
    std::erase(running_, nullptr);
  }

  /// Why engines were stopped, one sentence each.
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  void measure(Baseline& baseline, RunFolder& results, const Setting& setting, const Prompt& prompt,
               const Sampling& sampling, int repeat) {
    const BaselineEngine& engine = baseline.engine();
    for (const bool speculative : {false, true}) {
      if (speculative && !engine.speculation) continue;
      const std::string draft_length = speculative ? setting.draft_lengths.front() : "0";
      Row row;
      row.key = {engine.name,  setting.setup, setting.sampling, speculative ? "speculative" : "plain",
                 draft_length, repeat,        prompt.task};
      if (results.has(row.key)) continue;
      BaselineTask wanted{prompt.ids, end_tokens_, sampling, {}};
      if (speculative) wanted.draft_length = draft_length;
      const BaselineAnswer answer = baseline.run(wanted);
      row.prompt_tokens = static_cast<std::int64_t>(prompt.ids.size());
      row.new_tokens = static_cast<std::int64_t>(answer.new_ids.size());
      row.new_ids = answer.new_ids;
      std::string written;
      TextStream stream(tokenizer_, prompt.ids, [&](std::string_view piece) { written += piece; });
      for (const Token token : answer.new_ids) stream(token);
      stream.finish();
      row.completion = completion_of(setting.setup, written);
      const bool ended = std::ranges::find(end_tokens_, answer.new_ids.back()) != end_tokens_.end();
      row.finish_reason = name_of(ended ? FinishReason::end_token : FinishReason::length);
      row.total = answer.total;
      row.prompt = answer.prompt;
      row.drafted = answer.drafted;
      row.accepted = answer.accepted;
      row.rounds = answer.rounds;
      results.append(row);
    }
  }

  std::filesystem::path folder_;
  std::vector<Token> end_tokens_;
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Baseline>> running_;
  std::vector<std::string> troubles_;
};

}  // namespace slm::bench::speculative
