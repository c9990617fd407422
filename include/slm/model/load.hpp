// load: a model folder or file -> a Model behind AnyModel.
#pragma once

#include <filesystem>

#include "slm/backend/default_device.hpp"
#include "slm/backend/select.hpp"
#include "slm/config/registry.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/model/any_model.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/load_options.hpp"

namespace slm { inline namespace v0_1 {

/// Loads a Hugging Face folder (config.json, safetensors) or a GGUF file. It runs as Dynamic, whose shape is known at
/// run time. A program that names a Registry of compile-time configs runs a shape of these as its config; then
/// options.only_known refuses all others. The results have the same bits. Models that are loaded without a device share
/// one. Weights may stay in the mapped file: loading, and every step of a model whose weights stay there,
/// throws io.file-changed where the file was shortened or cannot be read, see docs/robustness.md. Throws Error naming
/// the file, tensor or field at fault.
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
