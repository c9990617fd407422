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
  int pipeline = 1;  // stages of layers that several ranks make
};

/// Loads models; over the ranks of the program where there are several. Those on the CPU share its threads.
class Loader {
 public:
  explicit Loader(ModelOptions options) : options_(std::move(options)) {}

  /// Draws a bar on a terminal when it takes long.
  slm::AnyModel load(const std::string& folder) {
    return load(folder, options_.backend, options_.context, options_.pipeline);
  }

  /// A draft beside its target, whose text it follows: a longer KV cache than the target's is of no use to it. One that
  /// has fewer layers than the pipeline has stages is one stage.
  /// backend: what backend_name() allows; empty: the target's.
  slm::AnyModel load_draft(const std::string& folder, const std::string& backend, const slm::ModelInfo& target);

 private:
  slm::AnyModel load(const std::string& folder, const std::string& backend, int context, int pipeline);

  ModelOptions options_;
  std::optional<slm::backend::Cpu> cpu_;
};

/// Adds --backend, --context, --cache-format, --threads, --copy-weights, --activations, --pipeline.
void add_model_options(CLI::App& command, ModelOptions& options);
/// Adds --context, --cache-format.
void add_cache_options(CLI::App& command, ModelOptions& options);
/// Allows --backend's words only.
CLI::Validator backend_name();

}  // namespace cli
