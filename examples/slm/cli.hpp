// The subcommands of the program, and their shared parts.
#pragma once

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drafting.hpp"
#include "slm/core/os/path.hpp"
#include "slm/fwd.hpp"
#include "slm/speculative.hpp"
#include "tools/cli/chat_format.hpp"
#include "tools/cli/loading.hpp"
#include "tools/cli/output.hpp"

namespace cli {

// Each adds its subcommand; one file per subcommand.
void add_generate(CLI::App& program);
void add_chat(CLI::App& program);
void add_logits(CLI::App& program);
void add_embed(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_template(CLI::App& program);
void add_grammar(CLI::App& program);
void add_info(CLI::App& program);
void add_demo(CLI::App& program);
void add_perplexity(CLI::App& program);
void add_quantize(CLI::App& program);
void add_merge(CLI::App& program);
void add_serve(CLI::App& program);

/// Adds an option with an integer value of 0 to 2^64 - 1.
CLI::Option& add_whole_number(CLI::App& command, const std::string& name, std::uint64_t& value,
                              const std::string& description);
/// Parses "1,5,7"; returns false for anything else.
bool parse_ids(std::string_view text, std::vector<slm::Token>& ids);
/// The error if a word in the position of a command is not a command.
std::optional<slm::Error> unknown_command(const CLI::App& program, std::span<const std::string> words);

/// A sink that collects the streamed ids until *interrupted is not zero.
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

/// Decimal digits of the float, not of its value as double.
double exact_digits(float value);
/// The traits of the model in words.
std::vector<std::string> traits_of(const slm::Checkpoint& checkpoint);

/// At most one constraint of an answer.
struct ConstraintOptions {
  std::optional<std::string> schema_file, regex, choice, grammar_file;
  bool json_object = false;
  std::string whitespace = "default";
};

void add_constraint_options(CLI::App& command, ConstraintOptions& options);
/// Adds --whitespace, of JSON.
void add_whitespace_option(CLI::App& command, std::string& whitespace);
/// Throws cli.two-constraints and the errors of grammars. tokenizer: the folder or file of the target.
slm::ConstraintRef make_constraint(const ConstraintOptions& options, const std::string& tokenizer);

/// Options shared by generate and chat: models, sampling, drafting, stop strings.
struct DecodingOptions {
  std::string target, adapter;
  DraftingOptions drafting;
  ConstraintOptions constraint;                                        // of generate
  slm::Sampling sampling{.max_new_tokens = 128, .temperature = 0.0f};  // defaults
  slm::SuggestedSampling named;                                        // set by options
  bool generation_config = false;  // apply generation_config.json before the options
  std::vector<std::string> stops;
  std::string draft_length;  // empty: the rule's default
  std::string rule = "coupled";
  ModelOptions models;
};

void add_decoding_options(CLI::App& command, DecodingOptions& options);
/// Adds --chat-template, --chat-template-kwargs, --no-thinking.
void add_chat_options(CLI::App& command, ChatOptions& options);

/// A decoder with any drafter and rule. Between calls it keeps the KV cache of the common prefix.
struct Generator {
  slm::ModelInfo target;
  slm::Sampling sampling;                   // from the options
  slm::AdapterRef adapter = nullptr;        // from the options
  slm::ConstraintRef constraint = nullptr;  // from the options
  std::function<slm::Stats(const slm::Request&, Collector&)> generate = {};
  /// Many requests in one batch, see SpeculativeDecoder::generate.
  using Sink = std::function<bool(std::size_t request, const slm::GeneratedToken&)>;
  std::function<std::vector<slm::Stats>(std::span<const slm::Request>, const Sink&)> generate_all = {};
  /// Save: writes the last call's prompt and answer with keys and values to a file. Resume: reads such a file and
  /// returns the next prompt.
  std::function<void(const std::string& path)> save = {};
  std::function<std::vector<slm::Token>(const std::string& path)> resume = {};
};

/// Loads the models that the options name.
Generator make_generator(const DecodingOptions& options);

/// The statistics, with the finish reason from the sink: a stop string, or an interruption.
OrderedJson statistics_of(const slm::Stats& stats, const slm::TextStream& stream);

/// Answers every line of a file of requests, in a batch or one by one, and prints one line each.
void generate_lines(const DecodingOptions& options, const std::string& path, bool one_by_one);

}  // namespace cli
