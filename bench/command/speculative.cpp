// slm bench speculative: AMD's published comparison of plain and speculative decoding, done with any pair of models.
#include <memory>

#include "bench/command/command.hpp"
#include "bench/command/speculative/batches.hpp"
#include "bench/command/speculative/run.hpp"

namespace slm::bench {

void add_speculative(CLI::App& bench) {
  auto options = std::make_shared<speculative::Options>();
  CLI::App& command =
      *bench.add_subcommand("speculative", "Measure plain against speculative decoding, beside AMD's published table");
  auto* target = command.add_option("--target", options->target, "folder or GGUF file of the model whose text it is");
  auto* draft =
      command.add_option("--draft", options->draft, "folder or GGUF file of a small model that guesses ahead");
  target->needs(draft);
  draft->needs(target);
  auto* humaneval = command.add_option("--humaneval", options->humaneval,
                                       "HumanEval.jsonl or HumanEval.jsonl.gz of github.com/openai/human-eval");
  command.add_option("--out", options->out, "folder of the run; one that was stopped goes on")->capture_default_str();
  command.add_option("--setup", options->setup, "published (AMD's procedure), best (this library's), both")
      ->check(CLI::IsMember({"published", "best", "both"}))
      ->capture_default_str();
  command.add_option("--sampling", options->sampling, "greedy, sampled (temperature 0.1, top-k 10, top-p 0.95), both")
      ->check(CLI::IsMember({"greedy", "sampled", "both"}))
      ->capture_default_str();
  command
      .add_option("--draft-length", options->draft_length,
                  "of the setup best: tokens to guess ahead, or heuristic, confidence, adaptive")
      ->capture_default_str();
  command.add_option("--max-new-tokens", options->max_new_tokens, "for each task; published are 512")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--tasks", options->tasks, "only the first so many; 0: all")->check(CLI::Range(0, 1 << 20));
  command.add_option("--sweep", options->sweep, "tasks for the sweep over the draft lengths 1 to 8; 0: no sweep")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--repeats", options->repeats, "of the whole run; tables show medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  cli::add_model_options(command, options->models);
  command.add_option("--draft-backend", options->models.draft_backend, "where the draft runs; else as --backend")
      ->check(cli::backend_name());
  command
      .add_option(
          "--baseline", options->baselines,
          "also measure another engine, in the setup published: transformers, llama.cpp, or a script like those "
          "in bench/peers; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--python", options->python, "interpreter that has the packages of the other engines")
      ->capture_default_str();
  command.add_option("--baseline-seconds", options->baseline_seconds, "that another engine may take for one task")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command
      .add_flag("--run-programs", options->run_programs,
                "allow running what the models wrote, in a sandbox, for pass@1")
      ->needs(humaneval);
  command
      .add_option("--sequences", options->sequences,
                  "only this: so many texts at once, 1,4,16; with --draft-length, --max-new-tokens, --tasks, --repeats")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->json, "print the summary as one JSON object");
  command.callback([options] {
    options->sequences.empty() ? speculative::Run(*options).go() : speculative::Batches(*options).go();
  });
}

}  // namespace slm::bench
