#include "bench/command/humaneval.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "bench/command/json_lines.hpp"

namespace slm::bench {

namespace {

bool is_identifier(const std::string& name) {
  const auto letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), letter);
}

}  // namespace

std::vector<Task> read_humaneval(const std::filesystem::path& path) {
  std::vector<Task> tasks;
  std::set<std::string> ids;
  read_json_lines(path, [&](const JsonLine& line) {
    Task task{line.string("task_id"), line.string("prompt"), line.string("entry_point"),
              line.string("canonical_solution"), line.string("test")};
    if (!ids.insert(task.id).second) {
      throw Error("bench.duplicate-task", text("'", line.place, "' is the second task '", task.id, "'"),
                  "Remove one of the two, or download the file again");
    }
    if (!is_identifier(task.entry_point)) {
      throw Error("bench.bad-entry-point",
                  text("'", line.place, "' names the function '", task.entry_point, "', expected a Python name"),
                  "Repair the line, or download the file again");
    }
    tasks.push_back(std::move(task));
  });
  if (tasks.empty()) {
    throw Error("bench.no-tasks", text("'", path.string(), "' contains no tasks"),
                "Download HumanEval.jsonl.gz from https://github.com/openai/human-eval (folder data)");
  }
  return tasks;
}

}  // namespace slm::bench
