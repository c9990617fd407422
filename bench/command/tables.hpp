// Markdown tables of reports.
#pragma once

#include <string>
#include <vector>

#include "bench/command/report.hpp"
#include "slm/core/error.hpp"

namespace slm::bench {

/// Text from outside, with what Markdown reads as markup escaped.
std::string markdown_text(const std::string& text);

/// A table with a heading; nothing where there are no rows. Cells may hold anything.
std::string markdown_table(const std::string& title, const std::vector<std::string>& head,
                           const std::vector<std::vector<std::string>>& rows);

/// "1 thread", "2 threads"
template <class Count>
std::string counted(Count count, const std::string& noun) {
  return text(count, " ", noun, count == 1 ? "" : "s");
}

/// A figure with three digits: 0.0123, 4.56, 78.9, 1234.
std::string shown(double value);

/// One line: name, backend, threads or multiprocessors, memory, driver.
std::string description_of(const Device& device);

/// A number of a result, or the other value where it has none of this name.
double number_of(const Result& result, const std::string& name, double otherwise = 0);

/// Of the bandwidth measured beside it: 0.8. NaN where that was not.
double share_of_bandwidth(const Result& result);

/// "80 %", or "not measured"
std::string percent(double share);

/// Median bytes per second of all probes; NaN without any.
double bandwidth_of(const Report& report);

/// The whole report of one device.
std::string device_tables(const Report& report);

}  // namespace slm::bench
