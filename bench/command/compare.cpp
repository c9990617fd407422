// `slm bench compare`: reports of several devices side by side, as tables and a picture.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "bench/command/command.hpp"
#include "bench/command/plots.hpp"
#include "bench/command/tables.hpp"
#include "slm/core/error.hpp"
#include "slm/io/write_file.hpp"

namespace slm::bench {

namespace {

/// The results of one device, from one or several files.
struct Column {
  std::string label;
  Report report;
  std::string file;
};

std::string short_name(const Device& device) {
  if (device.threads == 0) return device.name;
  return device.name + ", " + counted(device.threads, "thread");
}

bool same_measurement(const Result& a, const Result& b) {
  return a.benchmark == b.benchmark && a.model == b.model && a.format == b.format && a.rows == b.rows;
}

/// Whether both reports have a result of the same measurement.
bool overlap(const Report& a, const Report& b) {
  return std::any_of(a.results.begin(), a.results.end(), [&](const Result& one) {
    return std::any_of(b.results.begin(), b.results.end(),
                       [&](const Result& other) { return same_measurement(one, other); });
  });
}

/// Files of one device with different measurements form one column. Files with the same measurement are two runs.
std::vector<Column> columns_of(const std::vector<std::string>& files, std::vector<std::string>& notes) {
  std::vector<Column> columns;
  for (const std::string& file : files) {
    Report report = read_report(file);
    if (report.device.emulated()) {
      throw Error("bench.emulated",
                  text("'", file, "' comes from a GPU emulated by the CPU (", report.device.backend,
                       "): its times have no meaning"),
                  "Omit it, or measure on a device");
    }
    const auto of_device = [&](const Column& column) { return column.report.device == report.device; };
    const auto rest_of_it = std::find_if(columns.begin(), columns.end(), [&](const Column& column) {
      return of_device(column) && !overlap(column.report, report);
    });
    if (rest_of_it != columns.end()) {
      auto& results = rest_of_it->report.results;
      results.insert(results.end(), report.results.begin(), report.results.end());
      rest_of_it->file += " and " + file;
      continue;
    }
    if (const auto twin = std::find_if(columns.begin(), columns.end(), of_device); twin != columns.end()) {
      notes.push_back(text(twin->file, " and ", file, " come from the same device: their columns are two runs."));
    }
    std::string label = short_name(report.device);
    columns.push_back({std::move(label), std::move(report), file});
  }
  for (Column& column : columns) {
    const auto same = std::count_if(columns.begin(), columns.end(), [&](const Column& other) {
      return short_name(other.report.device) == short_name(column.report.device);
    });
    if (same > 1) column.label += " (" + std::filesystem::path(column.file).filename().string() + ")";
  }
  return columns;
}

/// One figure for every device, by measurement; NaN where a device has none.
struct Figure {
  struct Group {
    std::string label;
    std::vector<double> values;  // one per device
  };

  std::string title, unit, meaning;
  std::function<std::optional<double>(const Result&)> pick;
  bool best = false;  // take the highest of several results, not the first
  std::function<std::string(double)> written = shown;
  std::vector<Group> groups = {};

  void collect(const std::vector<Column>& columns) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      for (const Result& result : columns[c].report.results) {
        const std::optional<double> value = pick(result);
        if (!value || !std::isfinite(*value)) continue;
        const std::string label = text(result.model, ", ", result.format);
        auto group =
            std::find_if(groups.begin(), groups.end(), [&](const auto& other) { return other.label == label; });
        if (group == groups.end()) {
          group = groups.insert(groups.end(), {label, std::vector<double>(columns.size(), std::nan(""))});
        }
        double& place = group->values[c];
        if (std::isnan(place) || (best && *value > place)) place = *value;
      }
    }
  }

  /// The input of plots.py.
  Json chart(const std::vector<Column>& columns) const {
    Json chart = {{"title", title}, {"unit", unit}, {"series", Json::array()}, {"groups", Json::array()}};
    for (const Column& column : columns) chart["series"].push_back(column.label);
    for (const Group& group : groups) chart["groups"].push_back({{"label", group.label}, {"values", group.values}});
    return chart;
  }

  std::string table(const std::vector<Column>& columns) const {
    std::vector<std::string> head = {"model"};
    for (const Column& column : columns) head.push_back(column.label);
    std::vector<std::vector<std::string>> rows;
    for (const Group& group : groups) {
      rows.push_back({group.label});
      for (const double value : group.values)
        rows.back().push_back(std::isnan(value) ? "not measured" : written(value));
    }
    const std::string table = markdown_table(text(title, " (", unit, ")"), head, rows);
    return table.empty() ? table : table + "\n" + meaning + "\n";
  }
};

constexpr int verified = 5;

std::vector<Figure> figures() {
  const auto number = [](const char* benchmark, int rows, const char* name) {
    return [=](const Result& result) -> std::optional<double> {
      const bool fits = result.benchmark == benchmark && (rows == 0 || result.rows == rows);
      const auto found = result.numbers.find(name);
      if (!fits || found == result.numbers.end()) return std::nullopt;
      return found->second;
    };
  };
  const auto share = [](const Result& result) -> std::optional<double> {
    if (result.benchmark != "decode" || result.rows != 1) return std::nullopt;
    return 100 * share_of_bandwidth(result);
  };
  return {{.title = "Decoding, one token at a time",
           .unit = "tokens/s",
           .meaning = "Decoding speed without speculation. Higher is better.",
           .pick = number("decode", 1, "tokens_per_second")},
          {.title = "The same, as a share of the memory bandwidth",
           .unit = "% of the measured bandwidth",
           .meaning = "Each token reads every weight once, so memory bandwidth is the limit: 100 % is the fastest "
                      "possible on that device with these weights. The bandwidth is that of a copy or a sum of a large "
                      "buffer in the same run. Weights that fit into a cache can exceed 100 %.",
           .pick = share,
           .written = [](double value) { return percent(value / 100); }},
          {.title = text("Checking ", verified, " tokens verified in one step"),
           .unit = "times the cost of one token",
           .meaning = "Speculative decoding verifies several draft tokens in one step. At 1, they cost as much as one "
                      "token. Lower is better.",
           .pick = number("decode", verified, "times_one_row")},
          {.title = "Prefill",
           .unit = "tokens/s",
           .meaning = "Speed of processing the prompt. Higher is better.",
           .pick = number("prefill", 0, "tokens_per_second")},
          {.title = "Speculative decoding, best setting",
           .unit = "times plain decoding",
           .meaning = "Speedup of the same text with a draft model over decoding without one. Higher is better.",
           .pick = number("speculative", 0, "speedup"),
           .best = true}};
}

std::string devices_table(const std::vector<Column>& columns) {
  std::vector<std::vector<std::string>> rows;
  for (const Column& column : columns) {
    const double bandwidth = bandwidth_of(column.report);
    rows.push_back({column.label, description_of(column.report.device),
                    std::isfinite(bandwidth) ? shown(bandwidth / 1e9) : "not measured", column.report.version,
                    column.report.date});
  }
  return markdown_table("Devices", {"name", "description", "measured bandwidth, GB/s", "slm", "measured on"}, rows);
}

void run_compare(const std::vector<std::string>& files, const std::string& svg, const std::string& markdown) {
  std::vector<std::string> notes;
  const std::vector<Column> columns = columns_of(files, notes);
  std::string out = "# Comparison of devices\n" + devices_table(columns);
  out +=
      "\nModels are named with their weight format: bf16 (16 bits), w4a16 (4 bits), w4a8 (4 bits, 8-bit "
      "activations).\n";
  Json charts = Json::array();
  for (Figure& figure : figures()) {
    figure.collect(columns);
    if (figure.groups.empty()) continue;
    out += figure.table(columns);
    charts.push_back(figure.chart(columns));
  }
  if (charts.empty()) {
    throw Error("bench.nothing-to-compare", "none of these files contains a result of slm bench decode or speculative",
                "Measure with slm bench decode --json FILE on each device");
  }
  for (const Column& column : columns) {
    const auto& failures = column.report.failures;
    if (failures.empty()) continue;
    notes.push_back(text(column.label, ": ", counted(failures.size(), "measurement"),
                         " failed there, the first: ", failures.front()));
  }
  if (!notes.empty()) out += "\n## Notes\n\n";
  for (const std::string& note : notes) out += "- " + markdown_text(note) + "\n";
  std::cout << out << std::flush;
  if (!markdown.empty()) write_text_file(markdown, out);
  if (svg.empty()) return;
  const Pictures pictures = draw({{"figures", charts}});
  if (!pictures.trouble.empty()) std::cerr << pictures.trouble << '\n';
  for (const auto& [name, content] : pictures.files) write_text_file(svg, content);
}

}  // namespace

void add_compare(CLI::App& bench) {
  struct Options {
    std::vector<std::string> files;
    std::string svg, markdown;
  };
  CLI::App& command = *bench.add_subcommand("compare", "Compare reports of several devices");
  const auto options = std::make_shared<Options>();
  command.add_option("FILES", options->files, "reports of slm bench --json, one or more per device")->required();
  command.add_option("--svg", options->svg,
                     "write the comparison as a picture to this file (needs python3-matplotlib)");
  command.add_option("--markdown", options->markdown, "write the tables to this file");
  command.callback([options] { run_compare(options->files, options->svg, options->markdown); });
}

}  // namespace slm::bench
