// What people read: the table with AMD's rows beside the measured ones, and the pictures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/chart.hpp"
#include "bench/command/speculative/engines.hpp"
#include "bench/command/speculative/published.hpp"
#include "bench/command/speculative/table.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"

namespace slm::bench::speculative {

/// device: how the measured rows are named, as "BF16 cpu".
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

/// File name -> SVG; those that there is something to draw for.
inline std::map<std::string, std::string> pictures(const Json& summary) {
  LineChart sweep{"Speedup by draft length",
                  "drafted tokens per round",
                  "speedup",
                  {{"measured", {}}, {"predicted from acceptance per token", {}}, {"predicted from counts", {}}}};
  LineChart positions{"Acceptance by position", "position of the drafted token", "kept / drafted", {}};
  BarChart shares{
      "Where the time goes", "seconds for 1000 new tokens", {"prompt", "draft", "verify (target)", "choose"}, {}, true};
  for (const Json& found : summary["configurations"]) {
    if (found["engine"] != "slm") continue;
    const std::string name = text(found["setup"].get<std::string>(), ", ", found["sampling"].get<std::string>());
    if (found["setup"] == "sweep") {
      const double x = std::atof(found["draft_length"].get<std::string>().c_str());
      const auto add = [&](std::size_t series, const Json& value) {
        if (value.is_number()) sweep.series[series].points.push_back({x, value.get<double>()});
      };
      add(0, found["decode_speedup"]["median"]);
      add(1, found["predicted_speedup"]);
      add(2, found["predicted_speedup_from_counts"]);
      continue;
    }
    // Positions that few rounds reached say little.
    LineChart::Series line{name, {}};
    for (std::size_t i = 0; i < found["acceptance_by_position"].size(); ++i) {
      if (found["drafted_by_position"][i].get<std::int64_t>() < 30) break;
      line.points.push_back({static_cast<double>(i + 1), found["acceptance_by_position"][i].get<double>()});
    }
    positions.series.push_back(std::move(line));
    for (const char* kind : {"plain", "speculative"}) {
      const double tokens = std::max(found["new_tokens"][kind].get<double>(), 1.0);
      BarChart::Group group{text(name, ", ", kind), {}};
      for (const char* part : {"prompt", "draft", "verify", "choose"}) {
        group.values.push_back(found["seconds"][kind][part].get<double>() / tokens * 1000);
      }
      shares.groups.push_back(std::move(group));
    }
  }
  std::map<std::string, std::string> files;
  if (!sweep.series.front().points.empty()) files["speedup-by-draft-length.svg"] = to_svg(sweep);
  if (!positions.series.empty()) files["acceptance-by-position.svg"] = to_svg(positions);
  if (!shares.groups.empty()) files["time-shares.svg"] = to_svg(shares);
  if (std::string engines = engines_picture(summary.value("engines", Json::array())); !engines.empty())
    files["other-engines.svg"] = std::move(engines);
  return files;
}

/// report.md. notes: how it was measured, one line each.
inline std::string report_text(const Json& summary, const std::string& device, const std::vector<std::string>& notes) {
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
  for (const auto& [file, svg] : pictures(summary)) {
    written += "\n![" + file.substr(0, file.size() - 4) + "](" + file + ")\n";
  }
  return written;
}

}  // namespace slm::bench::speculative
