// pass@1 of a run's programs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/pass_at_1.hpp"
#include "bench/command/speculative/row.hpp"

namespace slm::bench::speculative {

/// Adds pass@1 of the first repeat to each configuration of a summary. Runs equal programs of one task once.
inline void judge(Json& summary, std::span<const Row> rows, const std::vector<Task>& tasks, const Sandbox& sandbox,
                  const JudgingOptions& options) {
  std::map<std::pair<std::string, std::string>, bool> passed;  // by task and completion
  const auto counts = [](const Row& row) { return row.key.repeat == 0 && row.key.setup != "sweep"; };
  std::vector<Sample> samples;
  for (const Row& row : rows) {
    if (counts(row) && passed.emplace(std::pair{row.key.task, row.completion}, false).second) {
      samples.push_back({row.key.task, row.completion});
    }
  }
  if (samples.empty()) return;
  const PassAt1 judged = pass_at_1(sandbox, tasks, samples, options);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    passed[{samples[i].task_id, samples[i].completion}] = judged.verdicts[i].outcome == Outcome::passed;
  }

  for (Json& found : summary["configurations"]) {
    if (found["setup"] == "sweep") continue;
    for (const std::string kind : {"plain", "speculative"}) {
      const std::string draft_length = kind == "plain" ? "0" : found["draft_length"].get<std::string>();
      int attempted = 0, right = 0;
      for (const Row& row : rows) {
        const Key& key = row.key;
        if (!counts(row) || key.kind != kind || key.draft_length != draft_length || found["engine"] != key.engine ||
            found["setup"] != key.setup || found["sampling"] != key.sampling) {
          continue;
        }
        ++attempted;
        right += passed.at({key.task, row.completion}) ? 1 : 0;
      }
      found["pass_at_1"][kind] = attempted > 0 ? Json(static_cast<double>(right) / attempted) : Json();
    }
  }
  summary["judged"] = {{"python", sandbox.python_version()}, {"sandbox", sandbox.layers()}};
}

}  // namespace slm::bench::speculative
