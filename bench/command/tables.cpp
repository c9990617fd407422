#include "bench/command/tables.hpp"

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "bench/samples.hpp"

namespace slm::bench {

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string table_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + markdown_text(text) + " |";
  return line + "\n";
}

/// The cost of verifying n rows, by n, from the decode results.
std::string costs_table(const Report& report) {
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, std::map<int, double>> costs;
  std::set<int> counts;
  for (const Result& result : report.results) {
    if (result.benchmark != "decode" || result.rows == 1) continue;
    const std::pair key{result.model, result.format};
    if (costs.find(key) == costs.end()) order.push_back(key);
    costs[key][result.rows] = number_of(result, "times_one_row");
    counts.insert(result.rows);
  }
  std::vector<std::string> head = {"model", "format"};
  for (const int count : counts) head.push_back(text("v(", count, ")"));
  Rows rows;
  for (const auto& key : order) {
    rows.push_back({key.first, key.second});
    for (const int count : counts) {
      const auto cost = costs[key].find(count);
      rows.back().push_back(cost == costs[key].end() ? "" : shown(cost->second));
    }
  }
  return markdown_table("Verification of n tokens in one step, in units of one token", head, rows);
}

}  // namespace

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_table(const std::string& title, const std::vector<std::string>& head, const Rows& rows) {
  if (rows.empty()) return "";
  std::string out = "\n## " + markdown_text(title) + "\n\n" + table_line(head) + "|";
  for (std::size_t i = 0; i < head.size(); ++i) out += "---|";
  out += "\n";
  for (const auto& row : rows) out += table_line(row);
  return out;
}

std::string shown(double value) {
  char digits[48];
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-3)) {
    std::snprintf(digits, sizeof digits, "%.3g", value);
    return digits;
  }
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  std::snprintf(digits, sizeof digits, "%.*f", decimals, value);
  std::string text = digits;
  if (decimals > 0) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string description_of(const Device& device) {
  const std::string who = device.threads > 0
                              ? counted(device.threads, "thread") + " of " + counted(device.cores, "core")
                              : text(device.cores, " multiprocessors");
  return text(device.name, " (", device.architecture, "), backend ", device.backend, ", ", who, ", ",
              shown(static_cast<double>(device.memory_bytes) / (1 << 30)), " GiB, ", device.driver);
}

double number_of(const Result& result, const std::string& name, double otherwise) {
  const auto found = result.numbers.find(name);
  return found == result.numbers.end() ? otherwise : found->second;
}

double share_of_bandwidth(const Result& result) {
  const double of_medians = result.bandwidth > 0 ? result.bytes / result.seconds / result.bandwidth
                                                 : std::numeric_limits<double>::quiet_NaN();
  return number_of(result, "share_of_bandwidth", of_medians);
}

std::string percent(double share) { return std::isfinite(share) ? shown(100 * share) + " %" : "not measured"; }

double bandwidth_of(const Report& report) {
  std::vector<double> bandwidths;
  for (const Result& result : report.results) {
    if (result.bandwidth > 0) bandwidths.push_back(result.bandwidth);
  }
  return bandwidths.empty() ? std::numeric_limits<double>::quiet_NaN() : median(std::move(bandwidths));
}

std::string device_tables(const Report& report) {
  Rows steps, batches, prompts, kernels;
  for (const Result& r : report.results) {
    const std::string speed = shown(r.bytes / r.seconds / 1e9);
    if (r.benchmark == "decode" && r.rows == 1) {
      steps.push_back({r.model, r.format, shown(r.seconds * 1e3), shown(number_of(r, "tokens_per_second")), speed,
                       percent(share_of_bandwidth(r))});
    } else if (r.benchmark == "batch") {
      batches.push_back({r.model, r.format, text(r.rows), shown(r.seconds * 1e3),
                         shown(number_of(r, "tokens_per_second")), speed, percent(share_of_bandwidth(r)),
                         shown(number_of(r, "times_one_sequence")), shown(number_of(r, "times_one_row")),
                         percent(number_of(r, "share_of_rows"))});
    } else if (r.benchmark == "prefill" || r.benchmark == "blas-prefill") {
      prompts.push_back({r.model, r.benchmark == "prefill" ? r.format : r.format + ", the vendor's library",
                         text(r.rows), shown(number_of(r, "tokens_per_second")),
                         shown(number_of(r, "flop_per_second") / 1e9)});
    } else if (r.benchmark.starts_with("kernel-")) {
      const double operations = number_of(r, "flop_per_second");
      kernels.push_back({r.benchmark.substr(7), r.model, r.format, text(r.rows), shown(r.seconds * 1e6), speed,
                         percent(share_of_bandwidth(r)), operations > 0 ? shown(operations / 1e9) : "",
                         shown(number_of(r, "times_one_row"))});
    }
  }
  std::string out = text("# ", markdown_text(report.device.name), "\n\nslm ", report.version, " on ",
                         markdown_text(description_of(report.device)), "; ", report.date, ".\n");
  if (const double bandwidth = bandwidth_of(report); std::isfinite(bandwidth)) {
    out += text("Memory bandwidth, measured beside every figure: ", shown(bandwidth / 1e9), " GB/s (median).\n");
  }
  if (report.device.emulated()) out += "\n**Emulated by the CPU: the times have no meaning.**\n";
  out += markdown_table("Decoding, one token per step",
                        {"model", "format", "ms a step", "tokens/s", "GB/s", "share of the bandwidth"}, steps);
  out += costs_table(report);
  out += markdown_table("Decoding many sequences, one token each per step",
                        {"model", "format", "sequences n", "ms a step", "tokens/s, all sequences", "GB/s",
                         "share of the bandwidth", "in units of one sequence", "v(n)", "of n / v(n)"},
                        batches);
  out += markdown_table("Prefill", {"model", "format", "tokens", "tokens/s", "GFLOP/s"}, prompts);
  out += markdown_table("Single operations",
                        {"operation", "model", "format", "rows", "us", "GB/s", "share of the bandwidth", "GFLOP/s",
                         "in units of one row"},
                        kernels);
  if (!report.failures.empty()) {
    out += "\n## Failed measurements\n\n";
    for (const std::string& failure : report.failures) out += "- " + markdown_text(failure) + "\n";
  }
  return out;
}

}  // namespace slm::bench
