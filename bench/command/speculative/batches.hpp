// slm bench speculative --sequences: batches of sequences, plainly and speculatively.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/command/speculative/run.hpp"
#include "bench/samples.hpp"

namespace slm::bench::speculative {

/// For each batch size, continues that many tasks together, alternating plain decoding and each draft length. Decoding
/// is greedy and ignores end tokens, so that all sequences have one length. Tasks repeat if there are fewer.
class Batches {
 public:
  explicit Batches(const Options& options)
      : options_(options),
        target_folder_(options.embedded() ? options.pair() + "/target" : options.target),
        tokenizer_(Tokenizer::from(target_folder_)),
        loader_(options.models),
        target_(loader_.load(target_folder_)),
        draft_(loader_.load_draft(options.embedded() ? options.pair() + "/draft" : options.draft, target_.info())) {
    const TokenLimits limits = TokenLimits::in(target_.info().context, options.max_new_tokens);
    for (const Task& task : read_tasks(options)) {
      requests_.push_back(
          {.prompt = fit(tokenizer_.encode(std::string{worked_example} + task.prompt), limits),
           .sampling = {.max_new_tokens = limits.max_new_tokens, .temperature = 0.0f, .ignore_end_tokens = true}});
    }
  }

  void go() {
    Json results = Json::array();
    std::vector<std::vector<std::string>> rows;
    cli::ProgressBar bar("batches");
    for (std::size_t i = 0; i < options_.sequences.size(); ++i) {
      const Json result = measure(options_.sequences[i]);
      rows.push_back({text(result["sequences"].get<int>()), shown(result["plain_tokens_per_second"]),
                      shown(result["speculative_tokens_per_second"]), shown(result["speedup"]),
                      shown(result["acceptance_rate"]), shown(result["tokens_per_target_step"])});
      results.push_back(result);
      bar(static_cast<double>(i + 1) / static_cast<double>(options_.sequences.size()));
    }
    if (options_.json) return cli::print_json({{"batches", results}});
    cli::print(markdown_table("Sequences decoded together",
                              {"sequences", "plain tokens/s, all sequences", "speculative", "speedup",
                               "acceptance rate", "tokens per target step"},
                              rows));
    cli::print(text("Greedy, draft length ", options_.draft_length, ", ", requests_.front().sampling.max_new_tokens,
                    " new tokens each, including the prompts; medians of ", options_.repeats, "; identical texts.\n"));
  }

 private:
  struct Outcome {
    std::vector<double> rates;  // tokens per second
    std::vector<std::vector<Token>> texts;
    Stats sum;
  };

  template <class Decoder>
  static void measure(Decoder&& decoder, const std::vector<Request>& requests, Outcome& outcome) {
    outcome.texts.assign(requests.size(), {});
    const double began = seconds();
    const std::vector<Stats> stats = decoder.generate(
        requests,
        [&](std::size_t i, const GeneratedToken& token) {
          outcome.texts[i].push_back(token.token);
          return true;
        },
        requests.size());
    const double took = seconds() - began;
    outcome.sum = {};
    for (const Stats& one : stats) {
      outcome.sum.emitted += one.emitted;
      outcome.sum.drafted += one.drafted;
      outcome.sum.accepted += one.accepted;
      outcome.sum.rounds += one.rounds;
    }
    outcome.rates.push_back(static_cast<double>(outcome.sum.emitted) / took);
  }

  Json measure(int sequences) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < static_cast<std::size_t>(sequences); ++i) {
      requests.push_back(requests_[i % requests_.size()]);
    }
    Speculation speculation;
    speculation.draft_length = draft_length::parse(options_.draft_length);
    Outcome plain, speculative;
    for (int repeat = 0; repeat <= options_.repeats; ++repeat) {  // the first one warms up
      measure(AutoregressiveDecoder{target_}, requests, plain);
      measure(SpeculativeDecoder{draft_, target_, speculation}, requests, speculative);
      if (repeat == 0) plain.rates.clear(), speculative.rates.clear();
      if (plain.texts == speculative.texts) continue;
      throw Error("bench.not-identical",
                  text("speculative and plain decoding of ", sequences, " sequences gave different texts"),
                  "Report this defect with your device's name");
    }
    return {{"sequences", sequences},
            {"plain_tokens_per_second", median(plain.rates)},
            {"speculative_tokens_per_second", median(speculative.rates)},
            {"speedup", median(speculative.rates) / median(plain.rates)},
            {"acceptance_rate", speculative.sum.acceptance_rate()},
            {"tokens_per_target_step", speculative.sum.tokens_per_target_step()},
            {"identical", true}};
  }

  Options options_;
  std::string target_folder_;
  Tokenizer tokenizer_;
  cli::Loader loader_;
  AnyModel target_, draft_;
  std::vector<Request> requests_;
};

}  // namespace slm::bench::speculative
