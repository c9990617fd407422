// A run of `slm bench speculative` from its options to its report.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/command/cpu_device.hpp"
#include "bench/command/humaneval.hpp"
#include "bench/command/plots.hpp"
#include "bench/command/speculative/baselines.hpp"
#include "bench/command/speculative/device_report.hpp"
#include "bench/command/speculative/identity.hpp"
#include "bench/command/speculative/interrupt.hpp"
#include "bench/command/speculative/judging.hpp"
#include "bench/command/speculative/measure.hpp"
#include "bench/command/speculative/report.hpp"
#include "bench/command/speculative/summary.hpp"
#include "bench/command/tables.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/io/path_name.hpp"
#include "tools/cli/data_path.hpp"
#include "tools/cli/gpu.hpp"
#include "tools/cli/loading.hpp"
#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"

namespace slm::bench::speculative {

struct Options {
  std::string target, draft, humaneval;
  std::string out = "slm-bench-speculative";
  std::string setup = "both", sampling = "both", draft_length = "adaptive";
  int max_new_tokens = 512;
  std::size_t tasks = 0, sweep = 8;
  int repeats = 1;
  std::vector<int> sequences;  // sequences per batch; empty: one, as published
  cli::ModelOptions models;
  std::vector<std::string> baselines;
  std::string python = "python3";
  double baseline_seconds = 600;
  bool run_programs = false;
  bool mixed = false;
  bool json = false;

  bool embedded() const { return target.empty(); }
  std::string pair() const { return cli::data_path("examples/demo_pair"); }
};

/// The prompts in the embedded pair's folder, as tasks without a test.
inline std::vector<Task> embedded_tasks(const Options& options) {
  std::vector<Task> tasks;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(options.pair() + "/prompts", failure)) {
    tasks.push_back({"demo_pair/" + entry.path().stem().string(), cli::read_file(entry.path().string()), "", "", ""});
  }
  if (tasks.empty()) {
    throw Error("bench.no-prompts", text("'", options.pair(), "/prompts' contains no prompts"),
                "Name models with --target and --draft, and tasks with --humaneval");
  }
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.id < b.id; });
  return tasks;
}

inline std::vector<Task> read_tasks(const Options& options) {
  std::vector<Task> tasks;
  if (!options.humaneval.empty()) {
    tasks = read_humaneval(options.humaneval);
  } else if (options.embedded()) {
    tasks = embedded_tasks(options);
  } else {
    throw Error("bench.no-humaneval", "these models need a task file",
                "Download data/HumanEval.jsonl.gz from github.com/openai/human-eval and name it with --humaneval");
  }
  if (options.tasks > 0 && options.tasks < tasks.size()) tasks.resize(options.tasks);
  return tasks;
}

/// One run from its options to its report.
class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        target_folder_(options.embedded() ? options.pair() + "/target" : options.target),
        draft_folder_(options.embedded() ? options.pair() + "/draft" : options.draft),
        tasks_(read_tasks(options)),
        settings_(settings_of(options.setup, options.sampling, options.draft_length, tasks_.size(), options.sweep)),
        tokenizer_(Tokenizer::from(target_folder_)),
        loader_(options.models),
        target_(loader_.load(target_folder_)),
        draft_(loader_.load_draft(draft_folder_, target_.info())),
        limits_(TokenLimits::in(target_.info().context, options.max_new_tokens)),
        prompts_(prompts()),
        measurement_(target_, draft_, tokenizer_, prompts_, settings_, options.repeats, limits_.max_new_tokens),
        manifest_(manifest()),
        folder_(options.out, manifest_, made()),
        baselines_(options.baselines, baseline_setup(), target_.info().end_tokens, tokenizer_, prompts_.front()) {}

  void go() {
    if (options_.run_programs) sandbox_.emplace(SandboxOptions{});
    write_prompts();
    const std::size_t before = folder_.rows_of("slm"), all = measurement_.rows();
    if (before > 0) say(text("continuing in '", options_.out, "': ", before, " of ", all, " measurements exist"));
    std::string trouble;
    try {
      measure();
    } catch (const std::exception& fault) {
      trouble = text("the run stopped: ", fault.what());
    }
    if (trouble.empty() && interrupted_) trouble = "the run was interrupted";
    const Json summary = folder_.rows().empty() ? Json() : write_report(trouble.empty());
    if (!trouble.empty()) {
      throw Error("bench.stopped",
                  text(trouble, trouble.ends_with(']') ? " " : ". ", folder_.rows_of("slm"), " of ", all,
                       " measurements are kept in '", options_.out, "'"),
                  "Repeat the same command to continue");
    }
    options_.json ? cli::print_json(summary) : show(summary);
    require_identical(summary);
    if (const auto& troubles = baselines_.troubles(); !troubles.empty()) {
      throw Error("bench.baseline-failed", text("all of slm's measurements exist, but ", troubles.front()),
                  "Fix the cause and repeat the same command: only missing rows are measured");
    }
  }

 private:
  void measure() {
    const InterruptGuard guard;
    cli::ProgressBar bar("measuring");
    const std::size_t present = folder_.rows_of("slm"), all = measurement_.rows();
    measurement_.run(
        folder_,
        [&](std::size_t done) {
          if (done > present) bar(static_cast<double>(done - present) / static_cast<double>(all - present));
        },
        [] { return InterruptGuard::asked(); },
        [&](const Setting& setting, const Prompt& prompt, const Sampling& sampling, int repeat) {
          baselines_.measure(folder_, setting, prompt, sampling, repeat);
        });
    interrupted_ = InterruptGuard::asked();
  }

  const std::string& draft_backend() const {
    return options_.models.draft_backend.empty() ? options_.models.backend : options_.models.draft_backend;
  }

  std::vector<Prompt> prompts() {
    std::vector<Prompt> made;
    for (const Task& task : tasks_) {
      const std::string text = std::string{worked_example} + task.prompt;
      const std::vector<Token> whole = tokenizer_.encode(text);
      std::vector<Token> ids = fit(whole, limits_);
      if (ids.size() < whole.size()) ++cut_;
      made.push_back({task.id, ids, ids.size() < whole.size() ? tokenizer_.decode(ids) : text});
    }
    return made;
  }

  Json manifest() const {
    Json texts = Json::array();
    for (const Task& task : tasks_) texts.push_back({task.id, task.prompt, task.entry_point, task.test});
    Sha256 hash;
    hash.update(json_text(texts));
    Json settings = Json::array();
    for (const Setting& setting : settings_) settings.push_back(to_json(setting));
    const Json sampled = {{"temperature", 0.1}, {"top_k", 10}, {"top_p", 0.95}, {"seed", "42 + number of the task"}};
    return {{"engine", text("slm ", SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH)},
            {"target", identity_of_model(target_folder_)},
            {"draft", identity_of_model(draft_folder_)},
            {"tasks", {{"count", tasks_.size()}, {"digest", "sha256:" + hash.finish()}}},
            {"settings", settings},
            {"sampled", sampled},
            {"max_new_tokens", limits_.max_new_tokens},
            {"window", limits_.window},
            {"repeats", options_.repeats},
            {"device", device_name(options_.models.backend)},
            {"draft_device", device_name(draft_backend())},
            {"backend", options_.models.backend},
            {"draft_backend", draft_backend()},
            {"draft_head", options_.models.draft_head},
            {"draft_bits", options_.models.draft_bits},
            {"threads", options_.models.cpu.threads > 0 ? options_.models.cpu.threads : usable_cores()},
            {"isa", backend::name_of(backend::resolve(options_.models.cpu.isa))},
            {"activations", options_.models.cpu.activations == backend::Int4Activations::bits8 ? 8 : 16},
            {"dense_activations", backend::name_of(options_.models.cpu.dense_activations)}};
  }

  BaselineSetup baseline_setup() const {
    const std::string backend = manifest_["backend"], draft_backend = manifest_["draft_backend"];
    if (!options_.baselines.empty() && (backend != "cpu" || draft_backend != "cpu")) {
      throw Error("baseline.other-device",
                  text("other engines compute on the CPU, slm on ", backend, " and ", draft_backend),
                  "Omit --backend and --draft-backend, or --baseline");
    }
    const auto model = [&](const char* which, const std::string& folder, const AnyModel& loaded) {
      return MeasuredModel{folder, manifest_[which]["weights"], loaded.info().vocab};
    };
    return {model("target", target_folder_, target_),
            model("draft", draft_folder_, draft_),
            manifest_["threads"],
            limits_.window,
            folder_.path(),
            options_.python,
            options_.baseline_seconds};
  }

  std::string device_name(const std::string& backend) const {
    if (backend.starts_with("gpu")) return cli::name_of_gpu(cli::number_of_gpu(backend));
    return cpu_device(options_.models.cpu.threads).name;
  }

  Json made() const {
    return {{"date", make_report({}).date.substr(0, 10)},
            {"target_folder", std::filesystem::absolute(target_folder_).string()},
            {"draft_folder", std::filesystem::absolute(draft_folder_).string()},
            {"humaneval", options_.humaneval}};
  }

  void write_prompts() const {
    write_file_whole(folder_.path() / "prompts.jsonl", [&](std::ostream& file) {
      for (const Prompt& prompt : prompts_) {
        file << json_text(Json{{"task_id", prompt.task}, {"ids", prompt.ids}, {"text", prompt.text}}) << '\n';
      }
    });
  }

  /// "BF16 CPU", as AMD's table names its rows.
  std::string device() const {
    std::string name = text(manifest_["target"]["precision"].get<std::string>(), " ", options_.models.backend);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    return name;
  }

  std::vector<std::string> notes(const Json& summary) const {
    const Json& run = manifest_;
    const Json date = folder_.made().is_object() ? folder_.made().value("date", Json()) : Json();
    const auto model = [&](const char* which, const std::string& folder) {
      return text(which, ": ", folder, " (", run[which]["precision"].get<std::string>(), ", weights ",
                  run[which]["weights"].get<std::string>(), ")");
    };
    std::vector<std::string> lines = {
        text("begun on ", date.is_string() ? date.get<std::string>() : "an unknown date", ", by ",
             run["engine"].get<std::string>(), " on ", run["device"].get<std::string>(), ", backend ",
             options_.models.backend, ", ", counted(run["threads"].get<int>(), "thread")),
        model("target", target_folder_), model("draft", draft_folder_),
        text(tasks_.size(), " tasks, ", counted(options_.repeats, "repeat"), ", at most ", limits_.max_new_tokens,
             " new tokens; ", cut_, " prompts were shortened to fit"),
        "every task runs plainly and speculatively, alternating; tokens per second include the prompt"};
    if (!summary["complete"].get<bool>()) {
      lines.push_back(text("NOT COMPLETE: ", folder_.rows_of("slm"), " of ", measurement_.rows(),
                           " measurements exist; the figures cover tasks that both kinds have finished"));
    }
    if (const auto judged = summary.find("judged"); judged != summary.end()) {
      lines.push_back(text("programs judged by Python ", (*judged)["python"].get<std::string>(), " in a sandbox of ",
                           (*judged)["sandbox"].get<std::string>()));
    }
    lines.insert(lines.end(), baselines_.troubles().begin(), baselines_.troubles().end());
    if (!no_pictures_.empty()) lines.push_back(no_pictures_);
    return lines;
  }

  /// Writes all files derived from the rows.
  Json write_report(bool whole) {
    Json summary = summary_of(folder_.rows());
    if (sandbox_ && whole) {
      cli::ProgressBar bar("judging");
      judge(summary, folder_.rows(), tasks_, *sandbox_,
            {.cut = Cut::none, .jobs = manifest_["threads"], .progress = [&bar](double share) { bar(share); }});
    }
    summary["run"] = manifest_;
    summary["prompts_cut"] = cut_;
    summary["complete"] = folder_.rows_of("slm") >= measurement_.rows();
    Json engines = read_engines(folder_.path());
    engines["slm"] = {{"version", manifest_["engine"].get<std::string>().substr(4)},
                      {"threads", manifest_["threads"]},
                      {"dtype", manifest_["target"]["precision"]}};
    summary["engines"] = engines_of(folder_.rows(), engines);
    summary["published"] = Json::array();
    for (const Published& row : published) {
      summary["published"].push_back(
          {{"device", row.device},
           {"sampling", row.sampling},
           {"pass_at_1", {{"plain", row.plain_pass_at_1 / 100}, {"speculative", row.speculative_pass_at_1 / 100}}},
           {"acceptance", row.acceptance},
           {"speedup", row.speedup}});
    }
    write_samples();
    write_text_file(folder_.path() / "summary.json", json_text(summary, 1) + "\n");
    if (auto device = device_of(options_.models.backend, manifest_["threads"], options_.models.cpu.isa)) {
      const auto precision = [&](const char* which) { return manifest_[which]["precision"].get<std::string>(); };
      bench::write_report(
          folder_.path() / "report.json",
          device_report(
              summary, text(slm::detail::name_of_path(target_folder_), " + ", slm::detail::name_of_path(draft_folder_)),
              text(precision("target"), " + ", precision("draft")), *device));
    }
    const Pictures pictures = draw({{"summary", summary}});
    no_pictures_ = pictures.trouble;
    for (const auto& [name, svg] : pictures.files) write_text_file(folder_.path() / name, svg);
    write_text_file(folder_.path() / "report.md", report_text(summary, device(), notes(summary), pictures.files));
    return summary;
  }

  /// The programs of the first repeat, one file for each setup, sampling and kind.
  void write_samples() const {
    std::map<std::string, std::string> files;
    for (const Row& row : folder_.rows()) {
      if (row.key.engine != "slm" || row.key.setup == "sweep" || row.key.repeat != 0) continue;
      files[text(row.key.setup, "-", row.key.sampling, "-", row.key.kind)] +=
          json_text(Json{{"task_id", row.key.task}, {"completion", row.completion}}) + "\n";
    }
    std::filesystem::create_directories(folder_.path() / "samples");
    for (const auto& [name, lines] : files) write_text_file(folder_.path() / "samples" / (name + ".jsonl"), lines);
  }

  void show(const Json& summary) const {
    cli::print(main_table(summary, device()) + "\n");
    if (const std::string sweep = sweep_table(summary); !sweep.empty()) cli::print(sweep + "\n");
    cli::print(identity_text(summary));
    if (const std::string engines = engines_text(summary["engines"]); !engines.empty())
      cli::print("\n" + engines + "\n");
    for (const std::string& note : notes(summary)) cli::print("- " + note + "\n");
    cli::print(text("Report: ", (folder_.path() / "report.md").string(), "\n"));
  }

  void say(const std::string& line) const {
    if (!options_.json) std::cerr << line << '\n';
  }

  static void require_identical(const Json& summary) {
    for (const Json& found : summary["configurations"]) {
      if (found["engine"] != "slm" || !found["identical"].contains("first_difference")) continue;
      throw Error(
          "bench.not-identical",
          text("speculative and plain decoding gave different texts for ",
               found["identical"]["first_difference"].get<std::string>(), " (", found["setup"].get<std::string>(), ", ",
               found["sampling"].get<std::string>(), ", draft length ", found["draft_length"].get<std::string>(), ")"),
          "Report this defect with your device's name");
    }
  }

  const Options& options_;
  std::string target_folder_, draft_folder_;
  std::vector<Task> tasks_;
  std::vector<Setting> settings_;
  Tokenizer tokenizer_;
  cli::Loader loader_;
  AnyModel target_, draft_;
  TokenLimits limits_;
  int cut_ = 0;  // shortened prompts
  std::vector<Prompt> prompts_;
  Measurement measurement_;
  Json manifest_;
  RunFolder folder_;
  Baselines baselines_;
  std::optional<Sandbox> sandbox_;
  std::string no_pictures_;  // reason
  bool interrupted_ = false;
};

}  // namespace slm::bench::speculative
