// slm demo: compares plain and speculative decoding on the pair in examples/demo_pair, or on a chat model.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>

#include "cli.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/text/chat.hpp"
#include "tools/bandwidth.hpp"
#include "tools/cli/data_path.hpp"
#include "tools/cli/isa_option.hpp"
#include "tools/demo/comparison.hpp"

namespace cli {

namespace {

struct DemoOptions {
  std::string pair = data_path("examples/demo_pair");
  std::string model;
  std::string prompt_file;
  int max_new_tokens = 128;
  std::string draft_length = "4";
  int repeats = 5;
  ModelOptions models;
  bool int4 = false;
  bool plain_text = false;
  bool json = false;
};

std::vector<std::string> read_prompts(const DemoOptions& options) {
  if (!options.prompt_file.empty()) return {read_file(options.prompt_file)};
  std::vector<std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(slm::path_of(options.pair) / "prompts", problem)) {
    files.push_back(entry.path());
  }
  if (files.empty()) {
    throw slm::Error("cli.no-prompts", slm::text("'", options.pair, "/prompts' has no prompts"),
                     "Name a file with --prompt-file, or another pair with --pair");
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> prompts;
  for (const auto& file : files) prompts.push_back(read_file(file.string()));
  return prompts;
}

/// Compares both kinds of decoding, and prints the result.
template <class Speculative>
void compare(const DemoOptions& options, slm::AutoregressiveDecoder<>& plain, Speculative& speculative,
             const std::vector<demo::Prompt>& prompts, const slm::Sampling& sampling,
             const std::function<double()>& probe = {}) {
  const demo::Comparison result = demo::compare(plain, speculative, prompts, sampling, options.repeats, probe);
  if (options.json) {
    OrderedJson json;
    json["identical"] = result.identical;
    json["acceptance_rate"] = result.speculative.acceptance_rate();
    json["tokens_per_target_step"] = result.speculative.tokens_per_step();
    json["plain_tokens_per_second"] = result.plain_speed;
    json["speculative_tokens_per_second"] = result.speculative_speed;
    json["speedup"] = result.speedup();
    json["prompts"] = result.prompts;
    json["new_tokens"] = result.speculative.tokens;
    if (result.bandwidth > 0) {
      json["step_bytes"] = result.step_bytes;
      json["bandwidth"] = result.bandwidth;
      json["plain_share_of_bandwidth"] = result.share_of_bandwidth(result.plain_steps);
      json["speculative_share_of_bandwidth"] = result.share_of_bandwidth(result.speculative_steps);
    }
    print_json(json);
  } else {
    print(demo::table_of(result));
  }
  demo::check_identical(result);
}

void demo_pair(const DemoOptions& options) {
  const std::vector<std::string> texts = read_prompts(options);
  Loader loader(options.models);
  const std::string kind = options.int4 ? "-int4" : "";
  const std::string target_folder = options.pair + "/target" + kind;
  slm::AnyModel target = loader.load(target_folder);
  slm::AnyModel draft = loader.load_draft(options.pair + "/draft" + kind, target.info());
  const auto tokenizer = slm::Tokenizer::from(slm::path_of(target_folder));

  slm::Speculation speculation;
  speculation.draft_length = slm::draft_length::parse(options.draft_length);
  slm::AutoregressiveDecoder plain(target);
  slm::SpeculativeDecoder speculative(draft, target, speculation);

  std::vector<demo::Prompt> prompts;
  for (const std::string& text : texts) prompts.push_back({text, tokenizer.encode(text)});
  const slm::Sampling sampling{.max_new_tokens = options.max_new_tokens, .temperature = 0.0f};
  if (!options.json) demo::show(speculative, tokenizer, prompts.front(), sampling, print);
  compare(options, plain, speculative, prompts, sampling);
}

/// With prompt lookup, a chat model answers a question and rewrites a paragraph, or a base model continues two texts.
void demo_model(const DemoOptions& options) {
  constexpr const char* question = "What is the capital of France, and what is it known for?";
  constexpr const char* task =
      "Correct the spelling of this paragraph, and change nothing else: The committee met on Tuesday to discuss the "
      "buget for the new library. Several members argued that the building should have more space for children, while "
      "others wanted a larger reading room. In the end they agreed to ask the architcet for two plans, one with each "
      "arrangement, and to decide at the meeting in March.";
  constexpr const char* text_beginning = "Question: What is the capital of France?\nAnswer: The capital of France is";
  constexpr const char* program_beginning = "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n";
  Loader loader(options.models);
  slm::AnyModel target = loader.load(options.model);
  const auto tokenizer = slm::Tokenizer::from(slm::path_of(options.model));
  slm::Sampling sampling{.max_new_tokens = options.max_new_tokens, .temperature = 0.0f};
  std::vector<std::string> texts{question, task};
  if (options.plain_text) texts = {text_beginning, program_beginning};
  if (!options.prompt_file.empty()) texts = {read_text(options.prompt_file)};
  std::vector<demo::Prompt> prompts;
  if (options.plain_text) {
    sampling.ignore_end_tokens = true;
    for (const std::string& text : texts) prompts.push_back({text, tokenizer.encode(text)});
  } else {
    const auto form = slm::ChatTemplate::from(slm::path_of(options.model));
    for (const slm::Token token : form.stops(tokenizer).tokens) {
      if (token < target.info().vocab) sampling.stop_tokens.push_back(token);
    }
    for (const std::string& text : texts) {
      const std::vector<slm::ChatMessage> messages{{"user", text}};
      prompts.push_back({"> " + text + "\n", form.encode(tokenizer, messages)});
    }
  }

  slm::Speculation speculation;
  speculation.draft_length = slm::draft_length::parse(options.draft_length);
  slm::AutoregressiveDecoder plain(target);
  slm::SpeculativeDecoder speculative(slm::Lookup{}, target, speculation);
  if (!options.json) {
    for (const demo::Prompt& prompt : prompts) demo::show(speculative, tokenizer, prompt, sampling, print);
  }
  const int cores = slm::usable_cores();
  slm::bench::BandwidthProbe probe(options.models.cpu.threads > 0 ? options.models.cpu.threads : cores);
  compare(options, plain, speculative, prompts, sampling, std::ref(probe));
}

}  // namespace

void add_demo(CLI::App& program) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App& command =
      *program.add_subcommand("demo", "Compare plain and speculative decoding of the embedded pair or of a chat model");
  auto* pair =
      command.add_option("--pair", options->pair,
                         "folder with draft/, target/, their int4 versions (draft-int4/, target-int4/), and prompts/");
  pair->capture_default_str();
  auto* model = command.add_option("--model", options->model,
                                   "chat model (folder or GGUF file) to run instead, with prompt lookup");
  model->excludes(pair);
  command
      .add_flag("--plain-text", options->plain_text,
                "continue texts, past end tokens, instead of answering: for --model without a chat template")
      ->needs(model);
  command.add_option("--prompt-file", options->prompt_file, "file to continue or answer instead");
  command.add_option("--max-new-tokens", options->max_new_tokens, "maximum new tokens per prompt")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--draft-length", options->draft_length,
                  "tokens to draft per round, or: adaptive, heuristic, confidence")
      ->capture_default_str();
  command.add_option("--repeats", options->repeats, "alternating runs of each kind")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--threads", options->models.cpu.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_isa_option(command, options->models.cpu.isa);
  add_cache_options(command, options->models);
  command.add_flag("--int4", options->int4, "use the 4-bit AWQ versions of both models instead of bfloat16")
      ->excludes(model);
  command.add_flag("--json", options->json, "print one JSON object");
  command.callback([options] { options->model.empty() ? demo_pair(*options) : demo_model(*options); });
}

}  // namespace cli
