// Files of one JSON object a line, as benchmarks exchange them: plain or gzipped, small, and hostile until checked.
#pragma once

#include <cstddef>
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
/// A file of more than most_bytes (inflated) is refused, and a line of more than 1 MiB.
void read_json_lines(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit,
                     std::size_t most_bytes = std::size_t{64} << 20);

}  // namespace slm::bench
