// slm bench check: pass@1 of a file of samples.
#include <cstdio>
#include <map>
#include <memory>

#include "bench/command/command.hpp"
#include "bench/command/pass_at_1.hpp"
#include "slm/core/error.hpp"
#include "slm/core/usable_cores.hpp"
#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"

namespace slm::bench {

namespace {

struct CheckCommand {
  std::string samples, humaneval, cut = "published";
  bool run_programs = false, json = false;
  SandboxOptions sandbox;
  JudgingOptions judging{.jobs = usable_cores()};
};

const std::map<std::string, Cut> cuts = {
    {"published", Cut::published}, {"function", Cut::function}, {"none", Cut::none}};

constexpr Outcome outcomes[] = {Outcome::passed, Outcome::failed, Outcome::timed_out, Outcome::out_of_memory,
                                Outcome::crashed};

void print_table(const PassAt1& result, std::size_t tasks, const Sandbox& sandbox) {
  std::string table = "verdict        programs\n";
  char line[80];
  for (const Outcome outcome : outcomes) {
    std::snprintf(line, sizeof line, "%-14s %8d\n", std::string(name_of(outcome)).c_str(), result.count(outcome));
    table += line;
  }
  std::snprintf(line, sizeof line, "pass@1 %.2f %% of %d tasks\n", 100 * result.rate, result.attempted);
  table += line;
  if (!result.without_sample.empty()) {
    table += text(result.without_sample.size(), " of ", tasks, " tasks have no sample and are not counted, from ",
                  result.without_sample.front(), " on\n");
  }
  cli::print(table + text("Python ", sandbox.python_version(), "; ", sandbox.layers(), "\n"));
}

void print_verdicts(const PassAt1& result, const std::vector<Sample>& samples, const Sandbox& sandbox) {
  cli::OrderedJson json{{"pass_at_1", result.rate}, {"tasks", result.attempted}};
  json["without_sample"] = result.without_sample;
  for (const Outcome outcome : outcomes) json["programs"][std::string(name_of(outcome))] = result.count(outcome);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Verdict& verdict = result.verdicts[i];
    json["verdicts"].push_back({{"task_id", samples[i].task_id},
                                {"verdict", name_of(verdict.outcome)},
                                {"detail", verdict.detail},
                                {"seconds", verdict.seconds}});
  }
  json["python"] = sandbox.python_version();
  json["sandbox"] = sandbox.layers();
  cli::print(json_text(json) + "\n");
}

void check(const CheckCommand& command) {
  if (!command.run_programs) {
    throw Error("bench.programs-not-allowed", "pass@1 runs programs that a model wrote, and they are unreviewed",
                "Allow it with --run-programs: they run in a sandbox (docs/benchmarks.md) without network and without "
                "files except Python's own");
  }
  const std::vector<Task> tasks = read_humaneval(command.humaneval);
  const std::vector<Sample> samples = read_samples(command.samples);
  const Sandbox sandbox(command.sandbox);
  JudgingOptions judging = command.judging;
  judging.cut = cuts.at(command.cut);
  PassAt1 result;
  {
    cli::ProgressBar bar("judging");
    judging.progress = [&bar](double share) { bar(share); };
    result = pass_at_1(sandbox, tasks, samples, judging);
  }
  if (command.json) return print_verdicts(result, samples, sandbox);
  print_table(result, tasks.size(), sandbox);
}

}  // namespace

void add_check(CLI::App& bench) {
  auto command = std::make_shared<CheckCommand>();
  CLI::App& app = *bench.add_subcommand("check", "Compute pass@1 of a file of generated programs");
  app.add_option("samples", command->samples, "file of {\"task_id\", \"completion\"} objects, one per line")
      ->required();
  app.add_option("--humaneval", command->humaneval, "HumanEval.jsonl or HumanEval.jsonl.gz, as downloaded")->required();
  app.add_flag("--run-programs", command->run_programs, "run the generated programs, in a sandbox");
  app.add_option("--jobs", command->judging.jobs, "programs that run at the same time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--cut", command->cut, "rule that ends a completion: published, function, none")
      ->check(CLI::IsMember({"published", "function", "none"}))
      ->capture_default_str();
  app.add_option("--python", command->sandbox.python, "Python interpreter")->capture_default_str();
  app.add_option("--processor-seconds", command->sandbox.processor_seconds,
                 "limit of processor time per program, seconds")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--seconds", command->sandbox.seconds, "limit of elapsed time per program, seconds")
      ->check(CLI::Range(1, 36000))
      ->capture_default_str();
  app.add_flag("--json", command->json, "print one JSON object");
  app.callback([command] { check(*command); });
}

}  // namespace slm::bench
