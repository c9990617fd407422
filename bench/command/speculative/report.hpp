// The readable report: AMD's rows beside the measured ones.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/speculative/engines.hpp"
#include "bench/command/speculative/published.hpp"
#include "bench/command/speculative/table.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"

namespace slm::bench::speculative {

/// device: name of the measured rows, such as "BF16 cpu".
inline std::string main_table(const Json& summary, const std::string& device) {
  std::vector<Cells> rows = {{"where", "setup", "sampling", "pass@1, plain / speculative", "acceptance", "per token",
                              "tokens/step", "tokens/s", "speedup", "predicted", "from counts"}};
  const auto percent = [](const Json& share) { return share.is_number() ? Json(100 * share.get<double>()) : share; };
  const auto both = [](const Json& plain, const Json& speculative, int decimals) {
    return digits(plain, decimals) + " / " + digits(speculative, decimals);
  };
  for (const Published& row : published) {
    rows.push_back({text("AMD: ", row.device), "published", std::string{row.sampling},
                    both(row.plain_pass_at_1, row.speculative_pass_at_1, 2), digits(row.acceptance, 3), "-", "-", "-",
                    digits(row.speedup, 2) + "x", "-", "-"});
  }
  for (const Json& found : summary["configurations"]) {
    if (found["setup"] == "sweep") continue;
    const Json& passed = found["pass_at_1"];
    const Json& rates = found["tokens_per_second"];
    rows.push_back({text(found["engine"].get<std::string>(), ": ", device), found["setup"], found["sampling"],
                    passed.is_object() ? both(percent(passed["plain"]), percent(passed["speculative"]), 2) : "not run",
                    digits(found["acceptance"], 3), digits(found["acceptance_per_token"], 3),
                    digits(found["tokens_per_target_step"], 2),
                    both(rates["plain"]["median"], rates["speculative"]["median"], 1), times(found["speedup"]),
                    digits(found["predicted_speedup"], 2), digits(found["predicted_speedup_from_counts"], 2)});
  }
  return table(rows, 3);
}

/// Whether speculation changed any text.
inline std::string identity_text(const Json& summary) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> by_engine;
  for (const Json& found : summary["configurations"]) {
    auto& [compared, equal] = by_engine[found["engine"]];
    compared += found["identical"]["compared"].get<std::size_t>();
    equal += found["identical"]["equal"].get<std::size_t>();
  }
  std::string written;
  for (const auto& [engine, counts] : by_engine) {
    const auto& [compared, equal] = counts;
    written += text(engine, ": ", equal, " of ", compared, " speculative texts equal the plain ones, token for token",
                    equal != compared && engine == "slm" ? ": THEY DIFFER.\n" : ".\n");
  }
  return written;
}

inline std::string sweep_table(const Json& summary) {
  std::vector<Cells> rows = {{"draft_length", "acceptance", "per token", "tokens/step", "speedup", "decode speedup",
                              "predicted", "from counts"}};
  for (const Json& found : summary["configurations"]) {
    if (found["setup"] != "sweep") continue;
    rows.push_back({found["draft_length"], digits(found["acceptance"], 3), digits(found["acceptance_per_token"], 3),
                    digits(found["tokens_per_target_step"], 2), times(found["speedup"]), times(found["decode_speedup"]),
                    digits(found["predicted_speedup"], 2), digits(found["predicted_speedup_from_counts"], 2)});
  }
  return rows.size() > 1 ? table(rows, 0) : "";
}

/// report.md. notes: measurement conditions, one line each. pictures: file names.
inline std::string report_text(const Json& summary, const std::string& device, const std::vector<std::string>& notes,
                               const std::map<std::string, std::string>& pictures) {
  std::string written = "# Speculative decoding, measured by `slm bench speculative`\n\n";
  written += main_table(summary, device) + "\n" + identity_text(summary);
  written +=
      "\nAMD's rows are those of the model card of amd/AMD-Llama-135m-code: CodeLlama-7b with this draft, on "
      "HumanEval. docs/benchmarks.md of slm defines the columns.\n\n";
  for (const std::string& note : notes) written += "- " + note + "\n";
  if (const std::string engines = engines_text(summary.value("engines", Json::array())); !engines.empty()) {
    written += "\n## Other engines on the same prompts\n\n" + engines;
  }
  if (const std::string sweep = sweep_table(summary); !sweep.empty()) {
    written += "\n## Fixed draft lengths, greedy\n\n" + sweep;
  }
  for (const auto& [file, svg] : pictures) {
    written += "\n![" + file.substr(0, file.size() - 4) + "](" + file + ")\n";
  }
  return written;
}

}  // namespace slm::bench::speculative
