// Locations of files: fixtures in the repository, and optional larger files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace slm::testing {

/// The path of a file or folder of the checkout.
std::filesystem::path source_path(const std::string& relative);

/// tests/fixtures/<relative>
inline std::filesystem::path fixture(const std::string& relative) { return source_path("tests/fixtures/" + relative); }

/// examples/demo_pair/<relative>
inline std::filesystem::path demo_pair(const std::string& relative) {
  return source_path("examples/demo_pair/" + relative);
}

/// A file of the optional data folder ($SLM_TEST_DATA, else ../shared/data beside the checkout); empty when absent.
inline std::filesystem::path test_data(const std::string& relative) {
  const char* folder = std::getenv("SLM_TEST_DATA");
  const auto path = (folder ? std::filesystem::path{folder} : source_path("../shared/data")) / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

/// A model downloaded into build/models; empty when absent.
inline std::filesystem::path built_model(const std::string& name) {
  const auto path = source_path("build/models/" + name);
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

}  // namespace slm::testing

/// Skips a test case without its input, with a message.
#define SLM_SKIP_WITHOUT(path, what)                           \
  if ((path).empty()) {                                        \
    WARN("SKIPPED: " what " is not here (set SLM_TEST_DATA)"); \
    return;                                                    \
  }
