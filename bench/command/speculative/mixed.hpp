// slm bench speculative --mixed: plain decoding and the default drafts on mixed prompts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/command/speculative/mixed_prompts.hpp"
#include "bench/command/speculative/run.hpp"
#include "bench/samples.hpp"
#include "slm/decode/lookup.hpp"
#include "slm/text/chat.hpp"

namespace slm::bench::speculative {

/// Answers the prompts one by one, or all with a number of requests at a time, in which case the next request starts
/// when one ends. Alternates plain decoding and the decoder with all drafts, which keeps what it has learnt. Lookup
/// finds the answers of the same repeat only, as a repeated prompt would otherwise find its own answer. Decoding is
/// greedy and ends at an end token.
class Mixed {
 public:
  explicit Mixed(const Options& options)
      : options_(options),
        target_folder_(options.embedded() ? options.pair() + "/target" : options.target),
        tokenizer_(Tokenizer::from(target_folder_)),
        loader_(options.models),
        target_(loader_.load(target_folder_)),
        drafter_(Lookup{}) {
    if (options.embedded() || !options.draft.empty()) {
      drafter_.add(loader_.load_draft(options.embedded() ? options.pair() + "/draft" : options.draft, target_.info()));
    }
    const TokenLimits limits = TokenLimits::in(target_.info().context, options.max_new_tokens);
    std::optional<ChatTemplate> form;
    try {
      form = ChatTemplate::from(target_folder_);
    } catch (const Error&) {  // a base model continues the prompts
    }
    for (const MixedPrompt& prompt : mixed_prompts) {
      const std::vector<ChatMessage> messages{{"user", std::string{prompt.text}}};
      const std::vector<Token> ids =
          form ? form->encode(tokenizer_, messages) : tokenizer_.encode(std::string{prompt.text});
      requests_.push_back(
          {.prompt = fit(ids, limits), .sampling = {.max_new_tokens = limits.max_new_tokens, .temperature = 0.0f}});
    }
  }

  void go() {
    Json results = Json::array();
    double lowest = 0;
    const std::vector<int> sizes = options_.sequences.empty() ? std::vector<int>{1} : options_.sequences;
    cli::ProgressBar bar("mixed prompts");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Json result = measure(static_cast<std::size_t>(sizes[i]), [&](double part) {
        bar((static_cast<double>(i) + part) / static_cast<double>(sizes.size()));
      });
      const double least = result["lowest_ratio"];
      lowest = i == 0 ? least : std::min(lowest, least);
      results.push_back(result);
    }
    if (options_.json) return cli::print_json({{"batches", results}, {"lowest_ratio", lowest}});
    for (const Json& result : results) show(result);
    cli::print(text("Greedy, draft length ", options_.draft_length, ", at most ", options_.max_new_tokens,
                    " new tokens, including the prompts; medians of ", options_.repeats, "; identical texts.\n",
                    "Lowest ratio to plain decoding: ", shown(lowest), "\n"));
  }

 private:
  struct Outcome {
    std::vector<double> seconds;
    std::vector<std::vector<Token>> texts;
    std::int64_t emitted = 0, drafted = 0, accepted = 0, rounds = 0;

    double rate() const { return static_cast<double>(emitted) / median(seconds); }
  };

  template <class Decoder>
  static void answer(Decoder& decoder, const std::vector<Request>& requests, std::size_t at_once, Outcome& outcome) {
    outcome.texts.assign(requests.size(), {});
    outcome.emitted = outcome.drafted = outcome.accepted = outcome.rounds = 0;
    const double began = seconds();
    const std::vector<Stats> stats = decoder.generate(
        requests,
        [&](std::size_t i, const GeneratedToken& token) {
          outcome.texts[i].push_back(token.token);
          return true;
        },
        at_once);
    outcome.seconds.push_back(seconds() - began);
    for (const Stats& one : stats) {
      outcome.emitted += one.emitted;
      outcome.drafted += one.drafted;
      outcome.accepted += one.accepted;
      outcome.rounds += one.rounds;
    }
  }

  Json measure(std::size_t size, const std::function<void(double)>& progress) {
    Speculation speculation;
    speculation.draft_length = draft_length::parse(options_.draft_length);
    AutoregressiveDecoder plain{target_};
    SpeculativeDecoder speculative{drafter_, target_, speculation};
    Json rows = Json::array();
    std::vector<double> ratios;
    Outcome warm_up;
    const std::vector<Request> first_request{requests_.front()};
    answer(plain, first_request, 1, warm_up);
    answer(speculative, first_request, 1, warm_up);
    const std::size_t group = size == 1 ? 1 : requests_.size();
    for (std::size_t first = 0; first < requests_.size(); first += group) {
      std::vector<Request> requests(requests_.begin() + static_cast<std::ptrdiff_t>(first),
                                    requests_.begin() + static_cast<std::ptrdiff_t>(first + group));
      Outcome one, other;
      for (int repeat = 0; repeat < options_.repeats; ++repeat) {
        for (Request& request : requests) request.tenant = static_cast<std::uint64_t>(repeat + 1);
        const auto run_plain = [&] { answer(plain, requests, size, one); };
        const auto run_other = [&] { answer(speculative, requests, size, other); };
        if (repeat % 2 == 0)
          run_plain(), run_other();
        else
          run_other(), run_plain();
      }
      const MixedPrompt& prompt = mixed_prompts[first];
      if (one.texts != other.texts) {
        throw Error("bench.not-identical",
                    text("speculative and plain decoding gave different texts for ", std::string{prompt.name}),
                    "Report this defect with your device's name");
      }
      ratios.push_back(median(one.seconds) / median(other.seconds));
      rows.push_back(
          {{"kind", group == 1 ? std::string{prompt.kind} : "all"},
           {"prompt", group == 1 ? std::string{prompt.name} : text(group, " prompts")},
           {"plain_tokens_per_second", one.rate()},
           {"speculative_tokens_per_second", other.rate()},
           {"ratio", ratios.back()},
           {"drafted", other.drafted},
           {"acceptance_rate",
            other.drafted > 0 ? static_cast<double>(other.accepted) / static_cast<double>(other.drafted) : 0},
           {"tokens_per_target_step",
            other.rounds > 0 ? static_cast<double>(other.emitted) / static_cast<double>(other.rounds) : 0}});
      progress(static_cast<double>(first + group) / static_cast<double>(requests_.size()));
    }
    return {{"sequences", size},
            {"prompts", rows},
            {"lowest_ratio", *std::min_element(ratios.begin(), ratios.end())},
            {"median_ratio", median(ratios)}};
  }

  static void show(const Json& result) {
    std::vector<std::vector<std::string>> rows;
    for (const Json& row : result["prompts"]) {
      rows.push_back({row["kind"].get<std::string>(), row["prompt"].get<std::string>(),
                      shown(row["plain_tokens_per_second"]), shown(row["speculative_tokens_per_second"]),
                      shown(row["ratio"]), shown(row["acceptance_rate"]), shown(row["tokens_per_target_step"])});
    }
    if (rows.size() > 1) {
      rows.push_back({"lowest", "", "", "", shown(result["lowest_ratio"]), "", ""});
      rows.push_back({"median", "", "", "", shown(result["median_ratio"]), "", ""});
    }
    cli::print(markdown_table(text("Mixed prompts, ", counted(result["sequences"].get<int>(), "request"), " at a time"),
                              {"kind", "prompt", "plain tokens/s", "speculative", "ratio", "acceptance rate",
                               "tokens per target step"},
                              rows) +
               "\n");
  }

  Options options_;
  std::string target_folder_;
  Tokenizer tokenizer_;
  cli::Loader loader_;
  AnyModel target_;
  Drafter drafter_;
  std::vector<Request> requests_;
};

}  // namespace slm::bench::speculative
