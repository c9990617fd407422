// The server's description of its model, read from the model's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/service.hpp"

namespace serve {

std::string version_text();
/// 16 hexadecimal digits.
std::string hex(std::uint64_t number);

/// names: empty: the name of the folder or file. backend: as part of the fingerprint. Throws Error.
ServedModel describe_model(const std::string& path, std::vector<std::string> names, const slm::AnyModel& model,
                           const cli::ChatOptions& chat, const std::string& backend);

}  // namespace serve
