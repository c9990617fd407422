// slm bench speculative: AMD's published comparison of plain and speculative decoding, for any pair of models.
#include <memory>

#include "bench/command/command.hpp"
#include "bench/command/speculative/batches.hpp"
#include "bench/command/speculative/mixed.hpp"
#include "bench/command/speculative/run.hpp"

namespace slm::bench {

void add_speculative(CLI::App& bench) {
  auto options = std::make_shared<speculative::Options>();
  CLI::App& command =
      *bench.add_subcommand("speculative", "Compare plain and speculative decoding, beside AMD's published table");
  auto* target = command.add_option("--target", options->target, "target model (folder or GGUF file)");
  auto* draft = command.add_option("--draft", options->draft, "draft model (folder or GGUF file)");
  draft->needs(target);
  auto* humaneval = command.add_option("--humaneval", options->humaneval,
                                       "HumanEval.jsonl or HumanEval.jsonl.gz of github.com/openai/human-eval");
  command.add_option("--out", options->out, "folder of the run; an interrupted run continues there")
      ->capture_default_str();
  command
      .add_option("--setup", options->setup,
                  "procedure: published (AMD's, with the draft model), best (with all drafts), both")
      ->check(CLI::IsMember({"published", "best", "both"}))
      ->capture_default_str();
  command.add_option("--sampling", options->sampling, "greedy, sampled (temperature 0.1, top-k 10, top-p 0.95), both")
      ->check(CLI::IsMember({"greedy", "sampled", "both"}))
      ->capture_default_str();
  command
      .add_option("--draft-length", options->draft_length,
                  "setup best: tokens to draft per round, or heuristic, confidence, adaptive")
      ->capture_default_str();
  auto* length = command.add_option("--max-new-tokens", options->max_new_tokens,
                                    "limit of new tokens per task; 512 as published, 128 with --mixed");
  length->check(CLI::Range(1, 4096))->capture_default_str();
  command.add_option("--tasks", options->tasks, "number of tasks, from the first; 0: all")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--sweep", options->sweep, "tasks of the sweep over draft lengths 1 to 8; 0: no sweep")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--repeats", options->repeats, "repeats of the whole run; tables show medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  cli::add_model_options(command, options->models);
  cli::add_draft_weight_options(command, options->models);
  command
      .add_option("--baseline", options->baselines,
                  "also measure another engine in the setup published: transformers, llama.cpp, or a script like those "
                  "in bench/peers; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--python", options->python, "Python interpreter with the packages of the other engines")
      ->capture_default_str();
  command.add_option("--baseline-seconds", options->baseline_seconds, "time limit of another engine per task, seconds")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command.add_flag("--run-programs", options->run_programs, "run the generated programs in a sandbox, for pass@1")
      ->needs(humaneval);
  command
      .add_option("--sequences", options->sequences,
                  "measure only batches of this many sequences: 1,4,16; with --draft-length, --max-new-tokens, "
                  "--tasks, --repeats")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command.add_flag("--mixed", options->mixed,
                   "measure only 24 prompts (code, prose, chat, rewriting, random text, other languages) with all "
                   "drafts; --draft is optional; with --sequences, --draft-length, --max-new-tokens, --repeats");
  command.add_flag("--json", options->json, "print the summary as one JSON object");
  command.callback([options, length] {
    if (options->mixed) {
      if (length->count() == 0) options->max_new_tokens = 128;
      return speculative::Mixed(*options).go();
    }
    if (options->draft.empty() && !options->target.empty()) {
      throw Error("bench.no-draft", "expected a draft model beside the target, found none", "Name it with --draft");
    }
    options->sequences.empty() ? speculative::Run(*options).go() : speculative::Batches(*options).go();
  });
}

}  // namespace slm::bench
