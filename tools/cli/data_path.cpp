#include "tools/cli/data_path.hpp"

#include <filesystem>
#include <system_error>

#include "tools/cli/system.hpp"

namespace cli {

// The only source of the program with the checkout's path: a compiler cache serves every checkout.
std::string data_path(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path program = program_path();
  const std::filesystem::path installed = program.parent_path().parent_path() / "share/slm" / name;
  if (!program.empty() && std::filesystem::exists(installed, failure)) return installed.string();
  return SLM_SOURCE_DIR "/" + name;
}

}  // namespace cli
