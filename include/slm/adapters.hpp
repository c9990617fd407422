// Public header for LoRA adapters saved by PEFT. load_adapter() loads one adapter for a model. AdapterStore uses the
// same reader.
#pragma once

#include "slm/core/implementation_order.inc"

#include <filesystem>

#include "slm/core/macros.hpp"
#include "slm/io/peft.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/model/adapter_reader.hpp"

namespace slm { inline namespace v0_1 {

/// Loads an adapter for this model from a PEFT folder (adapter_config.json, adapter_model.safetensors). Sequences and
/// requests on any thread may share the handle. Throws Error naming the invalid file, field or tensor.
template <LanguageModel M>
AdapterRef load_adapter(const std::filesystem::path& folder, const M& model) {
  return load_adapter(folder, model.info());
}

namespace detail {
SLM_HAS_FUNCTIONS(slm_adapters_hpp)
[[gnu::used]] inline const bool has_adapter_reader = (adapter_reader = read_peft, true);
}

}}
