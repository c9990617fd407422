// Lists of ids from the command line, lists of numbers to standard output.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "cli.hpp"

namespace cli {

bool parse_ids(std::string_view text, std::vector<slm::Token>& ids) {
  ids.clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;; ++at) {
    const auto [stop, fault] = std::from_chars(at, end, ids.emplace_back());
    if (fault != std::errc{}) return false;
    if (stop == end) return true;
    if (*stop != ',') return false;
    at = stop;
  }
}

void append_numbers(std::string& out, std::span<const float> values) {
  out += "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ",";
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(values[i]));
    out += std::isfinite(values[i]) ? digits : "null";
  }
  out += "]";
}

}  // namespace cli
