// Models on the backends that a command line names.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "slm/speculative.hpp"

namespace cli {

/// Loads models. Those on the CPU share its threads.
class Loader {
 public:
  explicit Loader(slm::backend::CpuOptions options) : options_(options) {}

  /// backend: what backend_name() allows. Draws a bar on a terminal when it takes long.
  slm::AnyModel load(const std::string& folder, const std::string& backend);

 private:
  slm::backend::CpuOptions options_;
  std::optional<slm::backend::Cpu> cpu_;
};

/// Adds --backend, --threads, --copy-weights, --activations.
void add_backend_options(CLI::App& command, std::string& backend, slm::backend::CpuOptions& cpu);
/// Allows --backend's words only.
CLI::Validator backend_name();

}  // namespace cli
