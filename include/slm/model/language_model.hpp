// The concept that decoders see: a model is what follows each token of a batch of sequences.
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

/// What a decoder must know of a model besides its answers.
struct ModelInfo {
  std::string name = {};                                  // for messages: the folder or the config's name
  int vocab = 0;                                          // width of a logits row
  int context = 0;                                        // most tokens of a sequence
  std::vector<Token> end_tokens = {};                     // generation ends after any of these
  SuggestedSampling sampling = {};                        // of generation_config.json, for who asks for it
  std::function<std::vector<std::string>()> tokens = {};  // id -> token text, to compare tokenizers; may be empty
  std::int64_t step_bytes = 0;                            // weight bytes read by one decode step; 0: unknown
  bool chooses = false;                                   // whether it answers Want::choice
  bool headless = false;                                  // whether it answers Want::hidden only
  bool own_memory = false;                                // whether its device has memory that is not the host's
  std::shared_ptr<const void> identity = nullptr;         // the same for all handles of the model, and its adapters

  // The halves of load_adapter(), from any thread: into the memory of the host, and from there into that of the device,
  // where it stays as long as somebody has the second handle. Without the first one the model applies no adapters,
  // without the second they are used where they were read.
  std::function<AdapterRef(const std::filesystem::path&)> read_adapter = {};
  std::function<AdapterRef(const AdapterRef&)> place_adapter = {};
};

namespace detail {

/// Reads an adapter's folder for the model of a checkpoint. slm/adapters.hpp sets it, so that a program without
/// adapters does not compile the reader.
inline Adapter (*adapter_reader)(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                                 const HostMemory& allocate) = nullptr;

inline Adapter read_adapter_folder(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                                   const HostMemory& allocate) {
  if (adapter_reader != nullptr) return adapter_reader(folder, checkpoint, allocate);
  throw Error("adapter.no-reader", text("this program has no reader for the adapter '", folder.string(), "'"),
              "Include slm/adapters.hpp or slm/engine.hpp in one of its sources");
}

}  // namespace detail

/// See load_adapter() of a model.
inline AdapterRef load_adapter(const std::filesystem::path& folder, const ModelInfo& model) {
  if (!model.read_adapter) {
    throw Error("adapter.backend", text("'", model.name, "' applies no adapters"), "Load the model with slm::load");
  }
  AdapterRef adapter = model.read_adapter(folder);
  return model.place_adapter ? model.place_adapter(adapter) : adapter;
}

inline Error other_model(const Adapter& adapter, const std::string& model) {
  return Error("adapter.other-model", text("the adapter ", quote(adapter.name), " is not one of '", model, "'"),
               "Load it for this model (load_adapter)");
}

/// Throws adapter.other-model unless there is no adapter, or one that was placed for this model.
inline void check_adapter(const AdapterRef& adapter, const ModelInfo& model) {
  if (adapter == nullptr || (adapter->model != nullptr && adapter->model == model.identity)) return;
  throw other_model(*adapter, model.name);
}

/// A causal language model: weights that do not change, used by any number of sequences and threads.
///   pool(options)   memory of its own for keys and values; sequences in it are Sequence{pool}
///   sequence()      an empty text, in memory that all sequences made by this share
///   forward(batch)  appends the batch's tokens to their sequences and answers what was asked. Throws Error before
///                   anything is done when the batch is unsound (batch.…), the context is full or the KV cache is;
///                   every sequence is then as it was.
/// A row's answer depends on its own sequence only: not on the rows beside it, nor on how a prompt was cut.
template <class M>
concept LanguageModel = requires(const M& model, Batch& batch) {
  { model.info() } -> std::same_as<const ModelInfo&>;
  { model.pool(KvPoolOptions{}) } -> std::same_as<KvPool>;
  { model.sequence() } -> std::same_as<Sequence>;
  { model.forward(batch) } -> std::same_as<void>;
};

}}
