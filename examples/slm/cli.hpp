// What the subcommands of the program share: loading, writing, and their own entry points.
#pragma once

#include <CLI/CLI.hpp>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/speculative.hpp"

namespace cli {

using OrderedJson = nlohmann::ordered_json;

// Each adds its subcommand, one file each.
void add_generate(CLI::App& program);
void add_chat(CLI::App& program);
void add_logits(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_info(CLI::App& program);
void add_demo(CLI::App& program);
void add_perplexity(CLI::App& program);
void add_quantize(CLI::App& program);

/// Loads models on the backends a command line names. Models on the CPU share its threads.
class Loader {
 public:
  explicit Loader(slm::backend::CpuOptions options) : options_(options) {}

  /// backend: "cpu", "reference", "lanes32" or "lanes64". Draws a bar on a terminal when it takes long.
  slm::AnyModel load(const std::string& folder, const std::string& backend);

 private:
  slm::backend::CpuOptions options_;
  std::optional<slm::backend::Cpu> cpu_;
};

/// Adds --backend, --threads, --activations.
void add_backend_options(CLI::App& command, std::string& backend, slm::backend::CpuOptions& cpu);
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

/// A sink that collects the ids of what it streams, until *interrupted is not zero.
struct Collector {
  slm::TextStream stream;
  std::vector<slm::Token>& ids;
  const volatile std::sig_atomic_t* interrupted = nullptr;

  bool operator()(slm::Token token) {
    if (interrupted != nullptr && *interrupted != 0) return false;
    ids.push_back(token);
    return stream(token);
  }
  void finish() { stream.finish(); }
};

/// The known models as a table in Markdown.
std::string known_models_table();

/// What generate and chat share: which models, how they choose tokens and guess ahead, where the text stops.
struct DecodingOptions {
  std::string target, draft, drafter;
  slm::Sampling sampling{.max_new_tokens = 128, .temperature = 0.0f};
  std::vector<std::string> stops;
  std::string draft_length = "4";
  std::string rule = "coupled";
  std::string backend = "cpu", draft_backend;
  slm::backend::CpuOptions cpu;
};

void add_decoding_options(CLI::App& command, DecodingOptions& options);

/// A decoder of any drafter and rule. From call to call it keeps the KV caches of what its prompts have in common.
struct Generator {
  slm::ModelInfo target;
  std::function<slm::Stats(std::span<const slm::Token> prompt, const slm::Sampling&, Collector&)> generate;
};

/// Loads the models that the options name.
Generator make_generator(const DecodingOptions& options);

/// to_json(stats) with the reason that only the sink knows: a stop string, or an interruption.
OrderedJson statistics_of(const slm::Stats& stats, const Collector& sink);

}  // namespace cli
