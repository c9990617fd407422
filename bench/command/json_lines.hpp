// Files with one JSON object per line, plain or gzipped. Their contents are not trusted.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "slm/io/json.hpp"

namespace slm::bench {

/// One object and its position: "tasks.jsonl:12".
struct JsonLine {
  Json object;
  std::string place;

  /// A field that must be a string. Throws bench.missing-field for an absent one.
  const std::string& string(const char* name) const;
};

/// Calls `visit` with each object of the file, in order. Skips blank lines. Refuses files above 64 MiB (inflated) and
/// lines above 1 MiB.
void read_json_lines(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit);

}  // namespace slm::bench
