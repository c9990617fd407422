// The oracles of chat templates in tests/fixtures/templates.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "support/paths.hpp"

namespace slm::testing {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson template_cases(const std::string& file) {
  std::ifstream in(fixture("templates/" + file));
  return OrderedJson::parse(in);
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Cases of micro.json about what no known template uses, and slm leaves out.
inline bool not_offered(std::string_view name) {
  static constexpr std::array<std::string_view, 5> names{"self-block", "f-wordwrap", "f-striptags-urlencode",
                                                         "f-filesizeformat", "f-xmlattr"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A published template, which is not in the repository; empty when absent.
inline std::filesystem::path published_template(const std::string& file) { return test_data("chat_templates/" + file); }

}  // namespace slm::testing
