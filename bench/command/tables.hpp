// Markdown tables of reports.
#pragma once

#include <string>
#include <vector>

#include "bench/command/report.hpp"
#include "slm/core/error.hpp"

namespace slm::bench {

/// Untrusted text with Markdown's markup escaped.
std::string markdown_text(const std::string& text);

/// A table with a heading; empty without rows. Cells may hold any text.
std::string markdown_table(const std::string& title, const std::vector<std::string>& head,
                           const std::vector<std::vector<std::string>>& rows);

/// "1 thread", "2 threads"
template <class Count>
std::string counted(Count count, const std::string& noun) {
  return text(count, " ", noun, count == 1 ? "" : "s");
}

/// A figure with three significant digits: 0.0123, 4.56, 78.9, 1234.
std::string shown(double value);

/// One line: name, backend, threads or multiprocessors, memory, driver.
std::string description_of(const Device& device);

/// A number of a result, or `otherwise` if the result lacks it.
double number_of(const Result& result, const std::string& name, double otherwise = 0);

/// The share of the bandwidth measured in the same run, such as 0.8. NaN without a probe.
double share_of_bandwidth(const Result& result);

/// "80 %", or "not measured"
std::string percent(double share);

/// Median bytes per second of all probes; NaN without probes.
double bandwidth_of(const Report& report);

/// All tables of one device's report.
std::string device_tables(const Report& report);

}  // namespace slm::bench
