// Locations of files: fixtures in the repository, and optional larger files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace slm::testing {

/// tests/fixtures/<relative>
inline std::filesystem::path fixture(const std::string& relative) {
  return std::filesystem::path{SLM_SOURCE_DIR} / "tests" / "fixtures" / relative;
}

/// examples/demo_pair/<relative>
inline std::filesystem::path demo_pair(const std::string& relative) {
  return std::filesystem::path{SLM_SOURCE_DIR} / "examples" / "demo_pair" / relative;
}

/// A file of the optional data folder ($SLM_TEST_DATA, else ../shared/data beside the checkout); empty when absent.
inline std::filesystem::path test_data(const std::string& relative) {
  const char* folder = std::getenv("SLM_TEST_DATA");
  const auto root = folder ? std::filesystem::path{folder} : std::filesystem::path{SLM_SOURCE_DIR} / "../shared/data";
  const auto path = root / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

/// A model downloaded into build/models; empty when absent.
inline std::filesystem::path built_model(const std::string& name) {
  const auto path = std::filesystem::path{SLM_SOURCE_DIR} / "build" / "models" / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

}  // namespace slm::testing

/// Skips a test case without its input, with a message.
#define SLM_SKIP_WITHOUT(path, what)                           \
  if ((path).empty()) {                                        \
    WARN("SKIPPED: " what " is not here (set SLM_TEST_DATA)"); \
    return;                                                    \
  }
