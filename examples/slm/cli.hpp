// What the subcommands of the program share: loading, writing, and their own entry points.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/speculative.hpp"

namespace cli {

using OrderedJson = nlohmann::ordered_json;

// Each adds its subcommand, one file each.
void add_generate(CLI::App& program);
void add_logits(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_info(CLI::App& program);
void add_demo(CLI::App& program);
void add_perplexity(CLI::App& program);

/// Loads models on the backends a command line names. Models on the CPU share its threads.
class Loader {
 public:
  /// threads: 0 is one per core.
  explicit Loader(int threads) : threads_(threads) {}

  /// backend: "cpu" or "reference". Draws a bar on a terminal when it takes long.
  slm::AnyModel load(const std::string& folder, const std::string& backend);

 private:
  int threads_;
  std::optional<slm::backend::Cpu> cpu_;
};

/// Adds --backend, --threads.
void add_backend_options(CLI::App& command, std::string& backend, int& threads);
/// Allows --backend's words only.
CLI::Validator backend_name();

/// Writes to standard output; throws slm::Error when that fails, as on a full disk.
void print(std::string_view text);
/// One JSON value on one line.
void print_json(const OrderedJson& json);

/// The whole of standard input.
std::string read_standard_input();
/// The whole of a file.
std::string read_file(const std::string& path);

OrderedJson to_json(const slm::Stats& stats);

/// A sink that collects the ids of what it streams.
struct Collector {
  slm::TextStream stream;
  std::vector<slm::Token>& ids;

  bool operator()(slm::Token token) {
    ids.push_back(token);
    return stream(token);
  }
  void finish() { stream.finish(); }
};

}  // namespace cli
