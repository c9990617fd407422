// LanguageModel: the concept that decoders use. A model maps a batch to logits, hidden states or sampled tokens.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/adapter.hpp"
#include "slm/model/batch.hpp"
#include "slm/model/sequence.hpp"

namespace slm { inline namespace v0_1 {

class Checkpoint;

/// Properties of a model that a decoder needs.
struct ModelInfo {
  std::string name = {};               // name in messages: the folder or the config's name
  int vocab = 0;                       // width of a logits row
  int context = 0;                     // maximum tokens of a sequence
  std::vector<Token> end_tokens = {};  // generation ends after any of these tokens
  SuggestedSampling sampling = {};     // defaults from generation_config.json; not applied automatically
  std::function<std::vector<std::string>()> tokens = {};  // id -> token text, to compare tokenizers; may be empty
  std::int64_t step_bytes = 0;                            // weight bytes read by one decode step; 0: unknown
  bool chooses = false;                                   // supports Want::choice
  bool headless = false;                                  // supports Want::hidden only
  bool own_memory = false;                                // the device has its own memory
  std::shared_ptr<const void> identity = nullptr;         // equal for all handles of the model and for its adapters

  // The two steps of load_adapter(), callable from any thread. read_adapter reads into host memory. place_adapter
  // copies to device memory, where the adapter stays until its last handle is released. If read_adapter is empty, the
  // model supports no adapters. If place_adapter is empty, adapters are used from host memory.
  std::function<AdapterRef(const std::filesystem::path&)> read_adapter = {};
  std::function<AdapterRef(const AdapterRef&)> place_adapter = {};
};

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

/// See load_adapter() in slm/adapters.hpp.
inline AdapterRef load_adapter(const std::filesystem::path& folder, const ModelInfo& model) {
  if (!model.read_adapter) {
    throw Error("adapter.backend", text("'", model.name, "' supports no adapters"), "Load the model with slm::load");
  }
  AdapterRef adapter = model.read_adapter(folder);
  return model.place_adapter ? model.place_adapter(adapter) : adapter;
}

inline Error other_model(const Adapter& adapter, const std::string& model) {
  return Error("adapter.other-model", text("the adapter ", quote(adapter.name), " was not loaded for '", model, "'"),
               "Load it for this model (load_adapter)");
}

/// Throws adapter.other-model unless `adapter` is null or was placed for this model.
inline void check_adapter(const AdapterRef& adapter, const ModelInfo& model) {
  if (adapter == nullptr || (adapter->model != nullptr && adapter->model == model.identity)) return;
  throw other_model(*adapter, model.name);
}

/// A causal language model: immutable weights, used by any number of sequences and threads.
///   pool(options)   creates a KV cache pool; construct sequences in it with Sequence{pool}
///   sequence()      returns an empty sequence in the model's default pool
///   forward(batch)  appends the batch's tokens to their sequences and computes the requested results. Throws Error
///                   before any change if the batch is invalid (batch.…), or the context or KV cache is full.
/// A row's result depends on its own sequence only: not on other rows of the batch, nor on how the prompt was divided.
template <class M>
concept LanguageModel = requires(const M& model, Batch& batch) {
  { model.info() } -> std::same_as<const ModelInfo&>;
  { model.pool(KvPoolOptions{}) } -> std::same_as<KvPool>;
  { model.sequence() } -> std::same_as<Sequence>;
  { model.forward(batch) } -> std::same_as<void>;
};

}}
