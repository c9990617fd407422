// The reader of adapters, which only programs with adapters contain.
#pragma once

#include <filesystem>
#include <string>

#include "slm/core/error.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 {

class Checkpoint;

namespace detail {

/// Reads an adapter folder for the model of a checkpoint. slm/adapters.hpp sets the pointer, so that programs without
/// adapters do not compile the reader.
inline Adapter (*adapter_reader)(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                                 const HostMemory& allocate) = nullptr;

inline Adapter read_adapter_folder(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                                   const HostMemory& allocate) {
  if (adapter_reader != nullptr) return adapter_reader(folder, checkpoint, allocate);
  throw Error("adapter.no-reader",
              text("expected a reader of adapters in this program, found none; it cannot read the adapter '",
                   folder.string(), "'"),
              "Include slm/adapters.hpp or slm/engine.hpp in one source of the program");
}

}  // namespace detail

}}
