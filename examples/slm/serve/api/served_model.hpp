// What the server tells of its model, read from the model's files.
#pragma once

#include <string>
#include <vector>

#include "api/service.hpp"

namespace serve {

std::string version_text();

/// names: empty for that of the folder or file. backend: as the fingerprint says it. Throws Error.
ServedModel describe_model(const std::string& path, std::vector<std::string> names, const slm::AnyModel& model,
                           const cli::ChatOptions& chat, const std::string& backend);

/// Serves another model under a name of its own: this one with an adapter, which lies in a folder. Throws Error where
/// clients could not use the name, or it is taken.
void add_adapted(ServedModel& served, const std::string& name, const std::string& folder, slm::AdapterRef adapter);

}  // namespace serve
