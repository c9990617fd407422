#include "bench/command/pass_at_1.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>

#include "bench/command/json_lines.hpp"
#include "slm/core/error.hpp"
#include "slm/core/start_thread.hpp"

namespace slm::bench {

namespace {

/// Adds a space to each line whose indentation is odd.
std::string even_indentation(std::string_view code) {
  std::string out;
  for (std::size_t at = 0; at <= code.size();) {
    const std::size_t end = std::min(code.find('\n', at), code.size());
    const std::string_view line = code.substr(at, end - at);
    if (std::min(line.find_first_not_of(' '), line.size()) % 2 == 1) out += ' ';
    out += line;
    if (end < code.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

/// The first line that begins at the left margin. A closing bracket there belongs to the line before.
std::size_t end_of_function(std::string_view code) {
  for (std::size_t at = code.find('\n'); at != std::string_view::npos; at = code.find('\n', at + 1)) {
    if (at + 1 < code.size() && std::string_view(" \t\r\n)]}").find(code[at + 1]) == std::string_view::npos)
      return at + 1;
  }
  return code.size();
}

}  // namespace

std::string cut_completion(const std::string& completion, Cut cut) {
  if (cut == Cut::none) return completion;
  if (cut == Cut::function) return completion.substr(0, end_of_function(completion));
  const std::string even = even_indentation(completion);
  const std::size_t begin = std::min(even.find_first_not_of('\n'), even.size());
  const std::size_t blank_line = even.find("\n\n", begin);
  return even.substr(begin, blank_line - begin);
}

std::vector<Sample> read_samples(const std::filesystem::path& path) {
  std::vector<Sample> samples;
  read_json_lines(path, [&](const JsonLine& line) {
    samples.push_back({line.string("task_id"), line.string("completion")});
  });
  if (samples.empty()) {
    throw Error("bench.no-samples", text("'", path.string(), "' contains no samples"),
                "Use a file of {\"task_id\": ..., \"completion\": ...} objects, one per line");
  }
  return samples;
}

int PassAt1::count(Outcome outcome) const {
  return static_cast<int>(std::count_if(verdicts.begin(), verdicts.end(),
                                        [&](const Verdict& verdict) { return verdict.outcome == outcome; }));
}

PassAt1 pass_at_1(const Sandbox& sandbox, const std::vector<Task>& tasks, const std::vector<Sample>& samples,
                  const JudgingOptions& options) {
  std::map<std::string_view, const Task*> by_id;
  for (const Task& task : tasks) by_id[task.id] = &task;
  for (const Sample& sample : samples) {
    if (by_id.count(sample.task_id) == 0) {
      throw Error(
          "bench.unknown-task",
          text("a sample is for the task '", sample.task_id, "', which is not among the ", tasks.size(), " tasks"),
          "Use the HumanEval file of these samples");
    }
  }

  PassAt1 result;
  result.verdicts.resize(samples.size());
  std::atomic<std::size_t> next{0};
  std::size_t done = 0;
  std::mutex mutex;
  std::exception_ptr fault;
  const auto work = [&] {
    for (std::size_t i = 0; (i = next++) < samples.size();) {
      const Task& task = *by_id.at(samples[i].task_id);
      try {
        result.verdicts[i] = sandbox.run({task.prompt + cut_completion(samples[i].completion, options.cut) + "\n",
                                          task.entry_point, task.prompt + task.canonical_solution, task.test});
        const std::lock_guard lock(mutex);
        ++done;
        if (options.progress) options.progress(static_cast<double>(done) / static_cast<double>(samples.size()));
      } catch (...) {
        const std::lock_guard lock(mutex);
        fault = std::current_exception();
        next = samples.size();
        return;
      }
    }
  };
  {
    std::vector<detail::JoinedThread> threads;
    while (static_cast<int>(threads.size()) < std::max(options.jobs, 1)) {
      try {
        threads.push_back(detail::start_thread(work));
      } catch (const Error&) {
        if (threads.empty()) throw;
        break;  // the running threads do all of the work
      }
    }
  }
  if (fault) std::rethrow_exception(fault);

  std::map<std::string_view, std::pair<int, int>> passed_of;  // passed, all
  for (std::size_t i = 0; i < samples.size(); ++i) {
    auto& [passed, all] = passed_of[samples[i].task_id];
    passed += result.verdicts[i].outcome == Outcome::passed;
    ++all;
  }
  for (const Task& task : tasks) {
    const auto found = passed_of.find(task.id);
    if (found == passed_of.end()) {
      result.without_sample.push_back(task.id);
      continue;
    }
    ++result.attempted;
    result.rate += static_cast<double>(found->second.first) / found->second.second;
  }
  if (result.attempted > 0) result.rate /= result.attempted;
  return result;
}

}  // namespace slm::bench
