// load: loads a model folder or file into an AnyModel.
#pragma once

#include <filesystem>

#include "slm/backend/default_device.hpp"
#include "slm/backend/select.hpp"
#include "slm/config/registry.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/model/load_options.hpp"

namespace slm { inline namespace v0_1 {

/// Loads a Hugging Face folder (config.json, safetensors) or a GGUF file.
/// Models: a Registry of compile-time configs. A shape in the registry runs as its config, other shapes as Dynamic;
/// options.only_known refuses other shapes. Results have the same bits either way.
/// device: by default, all models that are loaded without a device share one.
/// Weights may stay in the mapped file. Loading, and every step of a model that reads the mapped file, throws
/// io.file-changed if the file was truncated or cannot be read; see docs/robustness.md. Throws Error naming the invalid
/// file, tensor or field.
template <class Models = Registry<>, Backend B = DefaultBackend>
AnyModel load(const std::filesystem::path& folder, B device = backend::default_device<B>(),
              const LoadOptions& options = {});

}}

#if SLM_COMPILES
#include "slm/model/load_definition.hpp"
#endif

namespace slm { inline namespace v0_1 {
SLM_TEMPLATE AnyModel load<Registry<>>(const std::filesystem::path&, DefaultBackend, const LoadOptions&);
}}
