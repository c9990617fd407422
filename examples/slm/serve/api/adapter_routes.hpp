// Handlers of /v1/load_lora_adapter and /v1/unload_lora_adapter.
#pragma once

#include <functional>
#include <memory>

#include "api/service.hpp"

namespace serve {

/// Once loaded, the adapter is served as a model; its files must be in the folder of adapters. Throws Refusal and
/// Error.
std::unique_ptr<Exchange> load_adapter(const slm::Json& body, const ServedModel& model,
                                       const std::function<void()>& wake);
/// Returns the message for the client. Throws Refusal and Error.
std::string unload_adapter(const slm::Json& body, const ServedModel& model);

}  // namespace serve
