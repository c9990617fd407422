// The answers to /v1/load_lora_adapter and /v1/unload_lora_adapter.
#pragma once

#include <functional>
#include <memory>

#include "api/service.hpp"

namespace serve {

/// From when it is loaded, the adapter is a model; its files lie in the folder of adapters. Throws Refusal and Error.
std::unique_ptr<Exchange> load_adapter(const slm::Json& body, const ServedModel& model,
                                       const std::function<void()>& wake);
/// What is said of it. Throws Refusal and Error.
std::string unload_adapter(const slm::Json& body, const ServedModel& model);

}  // namespace serve
