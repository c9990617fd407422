// Files of one JSON object a line, as benchmarks exchange them: plain or gzipped, small, and hostile until checked.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "slm/io/json.hpp"

namespace slm::bench {

/// One object, and where it stands: "tasks.jsonl:12".
struct JsonLine {
  Json object;
  std::string place;

  /// A field that must be a string.
  const std::string& string(const char* name) const;
};

/// Calls `visit` with each object of the file, in order. Blank lines are skipped.
/// A file of more than 64 MiB (inflated) is refused, and a line of more than 1 MiB.
void read_json_lines(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit);

}  // namespace slm::bench
