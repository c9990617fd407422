// Loads models on the backends that the command line names.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "slm/speculative.hpp"

namespace cli {

/// Backend, context and cache format of models.
struct ModelOptions {
  std::string backend = "cpu";
  int context = 0;  // tokens; 0: the model's limit
  std::optional<slm::KvFormat> cache_format = {};
  slm::backend::CpuOptions cpu = {};
  int pipeline = 1;          // pipeline stages
  bool fast_reduce = false;  // reduce partial sums over ranks
  // A draft with its own device or ranks: drafting overlaps verification.
  int draft_threads =
      0;  // threads of its device, or of each of its ranks; 0: shares the target's device, or as many as the target
  int draft_ranks = 0;               // number of last ranks that hold it; 0: all ranks, like the target
  std::string draft_backend = {};    // empty: the target's
  int draft_head = 0;                // tokens with logits, see slm::LoadOptions::head_tokens; 0: all
  int draft_bits = 0;                // see slm::LoadOptions::bits
  std::function<void()> check = {};  // called while a model loads; its exception ends the load

  bool draft_is_apart() const {
    return draft_ranks > 0 || draft_threads > 0 || (!draft_backend.empty() && draft_backend != backend);
  }
};

/// Loads models, over all ranks of the program. CPU models share the threads.
class Loader {
 public:
  /// Throws ranks.draft.
  explicit Loader(ModelOptions options);

  /// Draws a progress bar on a terminal if loading is slow.
  slm::AnyModel load(const std::string& folder) {
    return load(folder, options_.backend, options_.context, options_.pipeline, false);
  }

  /// Loads a draft for a target; its KV cache need not be longer than the target's. A draft with fewer layers than
  /// pipeline stages, or on its own ranks, is one stage.
  slm::AnyModel load_draft(const std::string& folder, const slm::ModelInfo& target);

 private:
  slm::AnyModel load(const std::string& folder, const std::string& backend, int context, int pipeline, bool drafts);

  ModelOptions options_;
  std::optional<slm::backend::Cpu> cpu_, draft_cpu_;
};

/// Adds --backend, --context, --cache-format, --threads, --isa, --copy-weights, --activations, --pipeline,
/// --fast-reduce.
void add_model_options(CLI::App& command, ModelOptions& options);
/// Adds --draft-backend, --draft-head, --draft-bits; draft: the option that names the draft, if the latter two need it.
void add_draft_weight_options(CLI::App& command, ModelOptions& options, CLI::Option* draft = nullptr);
/// Adds these, --draft-threads and --draft-ranks.
void add_draft_options(CLI::App& command, ModelOptions& options, CLI::Option& draft);
/// Adds --context, --cache-format.
void add_cache_options(CLI::App& command, ModelOptions& options);
/// Validates the values of --backend.
CLI::Validator backend_name();

}  // namespace cli
