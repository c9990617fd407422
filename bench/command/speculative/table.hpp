// Markdown tables that are also readable as plain text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "slm/io/json.hpp"

namespace slm::bench::speculative {

using Cells = std::vector<std::string>;

/// A Markdown table with aligned columns: the first `left` ones to the left, numbers to the right.
inline std::string table(const std::vector<Cells>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 3);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string written;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string space(widths[i] - rows[r][i].size(), ' ');
      written += i < left ? "| " + rows[r][i] + space + " " : "| " + space + rows[r][i] + " ";
    }
    written += "|\n";
    if (r > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      written += (i < left ? "|:" : "|-") + std::string(widths[i], '-') + (i < left ? "-" : ":");
    }
    written += "|\n";
  }
  return written;
}

inline std::string digits(const Json& number, int decimals) {
  if (!number.is_number()) return "-";
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", decimals, number.get<double>());
  return text;
}

/// "2.41x", for several repeats "2.41x (2.38 to 2.44)".
inline std::string times(const Json& found) {
  if (!found.is_object()) return "-";
  std::string text = digits(found["median"], 2) + "x";
  if (found["least"] != found["most"])
    text += " (" + digits(found["least"], 2) + " to " + digits(found["most"], 2) + ")";
  return text;
}

}  // namespace slm::bench::speculative
