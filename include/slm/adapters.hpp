// The public header for adapters as PEFT saves them: load_adapter() loads one for a model. An AdapterStore reads
// its adapters by the same code.
#pragma once

#include "slm/core/implementation_order.inc"

#include <filesystem>

#include "slm/io/peft.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Loads an adapter for this model from a folder as PEFT saves it (adapter_config.json, adapter_model.safetensors).
/// Sequences and requests share the handle, from any thread. Throws Error naming the file, field or tensor at fault.
template <LanguageModel M>
AdapterRef load_adapter(const std::filesystem::path& folder, const M& model) {
  return load_adapter(folder, model.info());
}

namespace detail {
[[gnu::used]] inline const bool has_adapter_reader = (adapter_reader = read_peft, true);
}

}}
