// Models on the backends that a command line names.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>

#include "slm/speculative.hpp"

namespace cli {

/// Where models run, and how long a text they hold, in which format.
struct ModelOptions {
  std::string backend = "cpu";
  int context = 0;  // tokens; 0: what the model was trained for
  std::optional<slm::KvFormat> cache_format = {};
  slm::backend::CpuOptions cpu = {};
  int pipeline = 1;          // stages of layers that several ranks make
  bool fast_reduce = false;  // sums are added over ranks
  // A draft that has a device of its own, or ranks: it then drafts on while the target verifies.
  int draft_threads = 0;  // of its device, or of each of its ranks; 0: it shares the target's device, or has as many
  int draft_ranks = 0;    // the last of the program's; 0: it lies on all, as the target does
  std::string draft_backend = {};  // empty: the target's

  bool draft_is_apart() const {
    return draft_ranks > 0 || draft_threads > 0 || (!draft_backend.empty() && draft_backend != backend);
  }
};

/// Loads models; over the ranks of the program where there are several. Those on the CPU share its threads.
class Loader {
 public:
  /// Throws ranks.draft.
  explicit Loader(ModelOptions options);

  /// Draws a bar on a terminal when it takes long.
  slm::AnyModel load(const std::string& folder) {
    return load(folder, options_.backend, options_.context, options_.pipeline, false);
  }

  /// A draft beside its target, whose text it follows: a longer KV cache than the target's is of no use to it. One that
  /// has fewer layers than the pipeline has stages is one stage, as is one on ranks of its own.
  slm::AnyModel load_draft(const std::string& folder, const slm::ModelInfo& target);

 private:
  slm::AnyModel load(const std::string& folder, const std::string& backend, int context, int pipeline, bool drafts);

  ModelOptions options_;
  std::optional<slm::backend::Cpu> cpu_, draft_cpu_;
};

/// Adds --backend, --context, --cache-format, --threads, --isa, --copy-weights, --activations, --pipeline,
/// --fast-reduce.
void add_model_options(CLI::App& command, ModelOptions& options);
/// Adds --draft-backend, --draft-threads, --draft-ranks, beside the option that names the draft.
void add_draft_options(CLI::App& command, ModelOptions& options, CLI::Option& draft);
/// Adds --context, --cache-format.
void add_cache_options(CLI::App& command, ModelOptions& options);
/// Allows --backend's words only.
CLI::Validator backend_name();

}  // namespace cli
