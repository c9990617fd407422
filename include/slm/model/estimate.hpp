// estimate(): the memory of a model on the CPU, from the headers of its files.
#pragma once

#include "slm/core/implementation_order.inc"

#include <cstdint>
#include <filesystem>
#include <optional>

#include "slm/core/macros.hpp"
#include "slm/lm/kv_format.hpp"

namespace slm { inline namespace v0_1 {

class Checkpoint;

struct EstimateOptions {
  int context = 0;                         // tokens of each sequence; 0: the model's limit
  int sequences = 1;                       // that exist at the same time
  std::optional<KvFormat> kv_format = {};  // storage format of keys and values; none: f32
  std::filesystem::path draft = {};        // a draft model with the same sequences; empty: none
  int draft_head_tokens = 0;               // LoadOptions::head_tokens of the draft model
  int draft_bits = 0;                      // LoadOptions::bits of the draft model
};

/// Bytes. With a draft model: of both.
struct MemoryEstimate {
  std::uint64_t weights = 0;     // of all weights, allocated or in the mapped files
  std::uint64_t mapped = 0;      // the part of `weights` that steps read in the mapped files
  std::uint64_t cache = 0;       // keys and values, and states of recurrent layers
  std::uint64_t scratch = 0;     // the largest step's activations, and the rows of logits
  std::uint64_t step_bytes = 0;  // of the weights that a step of one row of the target reads: ModelInfo::step_bytes

  std::uint64_t total() const { return weights + cache + scratch; }
};

/// The memory of models that load() reads as stored on the CPU. Reads the headers of the files, and the scales of
/// layers with 4-bit and 8-bit codes, whose form in memory depends on them. The weights are exact except for memory
/// that the system rounds to pages. Pages of mapped files that loading converts also occupy memory until the system
/// needs it. Throws Error like load(), and estimate.sequences.
MemoryEstimate estimate(const std::filesystem::path& model, const EstimateOptions& options = {});

/// The same for files that are open already.
MemoryEstimate estimate(const Checkpoint& model, const EstimateOptions& options = {});

namespace detail {
SLM_HAS_FUNCTIONS(slm_model_estimate_hpp)
}

}}

#if SLM_COMPILES
#include "slm/model/estimate_functions.hpp"
#endif
