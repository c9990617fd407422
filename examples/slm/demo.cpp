// slm demo: compares plain and speculative decoding on the pair in examples/demo_pair, or on a chat model.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <sstream>

#include "cli.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/text/chat.hpp"
#include "tools/bandwidth.hpp"
#include "tools/cli/data_path.hpp"
#include "tools/cli/isa_option.hpp"

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
  bool json = false;
};

struct Prompt {
  std::string shown;
  std::vector<slm::Token> ids;
};

/// Results of all prompts for one kind of decoding.
struct Pass {
  std::vector<std::vector<slm::Token>> outputs;  // [prompts]
  std::int64_t tokens = 0;
  std::int64_t steps = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double seconds = 0;  // decoding seconds, excluding prompts

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  double steps_per_second() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
  double tokens_per_step() const { return steps > 0 ? static_cast<double>(tokens) / static_cast<double>(steps) : 0; }
  double acceptance_rate() const {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }
};

template <class Decoder>
Pass run(Decoder& decoder, const std::vector<Prompt>& prompts, const slm::Sampling& sampling) {
  Pass pass;
  for (const Prompt& prompt : prompts) {
    auto& output = pass.outputs.emplace_back();
    const slm::Stats stats = decoder.generate(prompt.ids, sampling, [&](slm::Token token) { output.push_back(token); });
    pass.tokens += stats.emitted;
    pass.steps += stats.rounds;
    pass.drafted += stats.drafted;
    pass.accepted += stats.accepted;
    pass.seconds += stats.decode_seconds();
  }
  return pass;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<std::string> read_prompts(const DemoOptions& options) {
  if (!options.prompt_file.empty()) return {read_file(options.prompt_file)};
  std::vector<std::filesystem::path> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(options.pair + "/prompts", problem)) {
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

std::string table_of(const OrderedJson& json, std::size_t prompts, int repeats) {
  std::ostringstream table;
  table << std::fixed << std::setprecision(2);
  const auto row = [&table](const char* label) -> std::ostream& {
    return table << "  " << std::left << std::setw(26) << label << std::right << std::setw(10);
  };
  const auto number = [&json](const char* key) { return json[key].get<double>(); };
  row("") << "plain" << std::setw(14) << "speculative" << '\n';
  row("tokens per second") << std::setprecision(0) << number("plain_tokens_per_second") << std::setw(14)
                           << number("speculative_tokens_per_second") << std::setprecision(2) << '\n';
  row("tokens per target step") << 1.0 << std::setw(14) << number("tokens_per_target_step") << '\n';
  row("acceptance") << "" << std::setw(14) << number("acceptance_rate") << '\n';
  row("speedup") << "" << std::setw(13) << number("speedup") << "x\n";
  if (json.contains("bandwidth")) {
    row("share of the bandwidth") << 100 * number("plain_share_of_bandwidth") << " %" << std::setw(12)
                                  << 100 * number("speculative_share_of_bandwidth") << " %\n";
  }
  row("identical output") << "" << std::setw(14) << (json["identical"].get<bool>() ? "yes" : "NO") << '\n';
  table << "  (" << prompts << " prompts, " << json["new_tokens"] << " new tokens; medians of " << repeats
        << " interleaved repeats, greedy)\n";
  if (json.contains("bandwidth")) {
    table << "  (a step reads " << json["step_bytes"].get<double>() / 1e6 << " MB of weights; the memory gave "
          << number("bandwidth") / 1e9 << " GB/s\n";
  }
  return table.str();
}

/// Runs both kinds of decoding alternately. With a probe, reports their share of the memory bandwidth.
template <class Speculative>
void compare(const DemoOptions& options, slm::AutoregressiveDecoder<slm::AnyModel>& plain, Speculative& speculative,
             const std::vector<Prompt>& prompts, const slm::Sampling& sampling, slm::bench::BandwidthProbe* probe) {
  std::vector<double> plain_speeds, speculative_speeds, plain_steps, speculative_steps, bandwidths;
  Pass first_speculative;
  bool identical = true;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    Pass one = run(plain, prompts, sampling);
    if (probe != nullptr) bandwidths.push_back((*probe)());
    Pass other = run(speculative, prompts, sampling);
    identical = identical && one.outputs == other.outputs;
    plain_speeds.push_back(one.tokens_per_second());
    speculative_speeds.push_back(other.tokens_per_second());
    plain_steps.push_back(one.steps_per_second());
    speculative_steps.push_back(other.steps_per_second());
    if (repeat == 0) first_speculative = std::move(other);
  }

  OrderedJson json;
  json["identical"] = identical;
  json["acceptance_rate"] = first_speculative.acceptance_rate();
  json["tokens_per_target_step"] = first_speculative.tokens_per_step();
  json["plain_tokens_per_second"] = median(plain_speeds);
  json["speculative_tokens_per_second"] = median(speculative_speeds);
  json["speedup"] = median(speculative_speeds) / median(plain_speeds);
  json["prompts"] = prompts.size();
  json["new_tokens"] = first_speculative.tokens;
  if (probe != nullptr) {
    const double bandwidth = median(bandwidths);
    const auto bytes = static_cast<double>(plain.model().info().step_bytes);
    json["step_bytes"] = bytes;
    json["bandwidth"] = bandwidth;
    json["plain_share_of_bandwidth"] = median(plain_steps) * bytes / bandwidth;
    json["speculative_share_of_bandwidth"] = median(speculative_steps) * bytes / bandwidth;
  }
  options.json ? print_json(json) : print(table_of(json, prompts.size(), options.repeats));
  if (!identical) {
    throw slm::Error("cli.not-identical",
                     "expected equal tokens from speculative and plain decoding, found different ones",
                     "Report this with your processor's name");
  }
}

template <class Decoder>
void show(Decoder& decoder, const slm::Tokenizer& tokenizer, const Prompt& prompt, const slm::Sampling& sampling) {
  print(prompt.shown);
  slm::TextStream stream(tokenizer, prompt.ids, [](std::string_view piece) { print(piece); });
  decoder.generate(prompt.ids, sampling, stream);
  print("\n\n");
}

void demo_pair(const DemoOptions& options) {
  const std::vector<std::string> texts = read_prompts(options);
  Loader loader(options.models);
  const std::string kind = options.int4 ? "-int4" : "";
  const std::string target_folder = options.pair + "/target" + kind;
  slm::AnyModel target = loader.load(target_folder);
  slm::AnyModel draft = loader.load_draft(options.pair + "/draft" + kind, target.info());
  const auto tokenizer = slm::Tokenizer::from(target_folder);

  slm::Speculation speculation;
  speculation.draft_length = slm::draft_length::parse(options.draft_length);
  slm::AutoregressiveDecoder plain(target);
  slm::SpeculativeDecoder speculative(draft, target, speculation);

  std::vector<Prompt> prompts;
  for (const std::string& text : texts) prompts.push_back({text, tokenizer.encode(text)});
  const slm::Sampling sampling{.max_new_tokens = options.max_new_tokens, .temperature = 0.0f};
  if (!options.json) show(speculative, tokenizer, prompts.front(), sampling);
  compare(options, plain, speculative, prompts, sampling, nullptr);
}

/// A chat model answers a question and rewrites a paragraph with prompt lookup.
void demo_chat(const DemoOptions& options) {
  constexpr const char* question = "What is the capital of France, and what is it known for?";
  constexpr const char* task =
      "Correct the spelling of this paragraph, and change nothing else: The committee met on Tuesday to discuss the "
      "buget for the new library. Several members argued that the building should have more space for children, while "
      "others wanted a larger reading room. In the end they agreed to ask the architcet for two plans, one with each "
      "arrangement, and to decide at the meeting in March.";
  Loader loader(options.models);
  slm::AnyModel target = loader.load(options.model);
  const auto tokenizer = slm::Tokenizer::from(options.model);
  const auto form = slm::ChatTemplate::from(options.model);
  slm::Sampling sampling{.max_new_tokens = options.max_new_tokens, .temperature = 0.0f};
  for (const slm::Token token : form.stops(tokenizer).tokens) {
    if (token < target.info().vocab) sampling.stop_tokens.push_back(token);
  }
  std::vector<std::string> texts{question, task};
  if (!options.prompt_file.empty()) texts = {read_text(options.prompt_file)};
  std::vector<Prompt> prompts;
  for (const std::string& text : texts) {
    const std::vector<slm::ChatMessage> messages{{"user", text}};
    prompts.push_back({"> " + text + "\n", form.encode(tokenizer, messages)});
  }

  slm::Speculation speculation;
  speculation.draft_length = slm::draft_length::parse(options.draft_length);
  slm::AutoregressiveDecoder plain(target);
  slm::SpeculativeDecoder speculative(slm::NgramDrafter{}, target, speculation);
  if (!options.json) {
    for (const Prompt& prompt : prompts) show(speculative, tokenizer, prompt, sampling);
  }
  const int cores = slm::usable_cores();
  slm::bench::BandwidthProbe probe(options.models.cpu.threads > 0 ? options.models.cpu.threads : cores);
  compare(options, plain, speculative, prompts, sampling, &probe);
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
  command.add_option("--prompt-file", options->prompt_file, "file to continue or answer instead");
  command.add_option("--max-new-tokens", options->max_new_tokens, "maximum new tokens per prompt")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--draft-length", options->draft_length,
                  "tokens to draft per round, or: heuristic, confidence, adaptive")
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
  command.callback([options] { options->model.empty() ? demo_pair(*options) : demo_chat(*options); });
}

}  // namespace cli
