// ModelInfo: properties of a model that a decoder needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/lm/suggested_sampling.hpp"

namespace slm { inline namespace v0_1 {

struct ModelInfo {
  std::string name = {};               // name in messages: the folder or the config's name
  int vocab = 0;                       // width of a logits row
  int context = 0;                     // maximum tokens of a sequence
  std::vector<Token> end_tokens = {};  // generation ends after any of these tokens
  SuggestedSampling sampling = {};     // defaults from generation_config.json; not applied automatically
  std::function<std::vector<std::string>()> tokens = {};  // id -> token text, to compare tokenizers; may be empty
  std::int64_t step_bytes = 0;                            // weight bytes read by one decode step; 0: unknown
  bool chooses = false;                                   // supports RowResult::choice
  bool headless = false;                                  // supports RowResult::hidden only
  bool own_memory = false;                                // the device has its own memory
  std::shared_ptr<const void> identity = nullptr;         // equal for all handles of the model and for its adapters

  // The two steps of load_adapter(), callable from any thread. read_adapter reads into host memory. place_adapter
  // copies to device memory, where the adapter stays until its last handle is released. If read_adapter is empty, the
  // model supports no adapters. If place_adapter is empty, adapters are used from host memory.
  std::function<AdapterRef(const std::filesystem::path&)> read_adapter = {};
  std::function<AdapterRef(const AdapterRef&)> place_adapter = {};
};

/// See load_adapter() in slm/adapters.hpp.
inline AdapterRef load_adapter(const std::filesystem::path& folder, const ModelInfo& model) {
  if (!model.read_adapter) {
    throw Error("adapter.backend", text("'", model.name, "' supports no adapters"),
                "Load the model with slm::load, with its whole head");
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

/// The Error for an operation that needs the head of a headless model.
inline Error no_head(const std::string& model) {
  return Error("checkpoint.no-head",
               text("'", model, "' has no head (expected lm_head weights, found none), so it computes no logits"),
               "Load the whole model, or request embeddings (slm embed, /v1/embeddings)");
}

}}
