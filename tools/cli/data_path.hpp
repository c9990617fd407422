// Files of the checkout that the program reads at run time: the embedded pair, scripts of the benchmarks.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "tools/cli/system.hpp"

namespace cli {

/// The path of a file or folder of the checkout: in share/slm next to an installed program, else in the checkout.
inline std::string data_path(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path program = program_path();
  const std::filesystem::path installed = program.parent_path().parent_path() / "share/slm" / name;
  if (!program.empty() && std::filesystem::exists(installed, failure)) return installed.string();
  return SLM_SOURCE_DIR "/" + name;
}

}  // namespace cli
