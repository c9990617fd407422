// Reads PEFT adapters: a folder with adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "slm/core/macros.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 {

class Checkpoint;

/// Reads an adapter for the model of a checkpoint; the caller sets Adapter::model. Throws Error naming the invalid
/// file, field or tensor.
Adapter read_peft(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                  const HostMemory& allocate = std::make_unique_for_overwrite<std::byte[]>);

}}

#if SLM_COMPILES
#include "slm/io/peft_reader.hpp"
#endif
