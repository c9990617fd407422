// slm quantize: converts a floating-point model to a 4-bit AWQ folder or a GGUF file, and measures perplexity before
// and after.
#include "slm/quantize.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>

#include "cli.hpp"
#include "slm/decode/perplexity.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/system.hpp"

namespace cli {

namespace {

struct QuantizeCommand {
  std::string model, output, calibration, evaluate, format = "awq", head = "float", type;
  slm::quantize::Options options;
  std::uint64_t most_tokens = 32768;
  bool rtn = false;
  ModelOptions models;
  bool json = false;
};

constexpr slm::DType gguf_types[] = {slm::DType::q4_0, slm::DType::q4_1, slm::DType::q5_0,
                                     slm::DType::q8_0, slm::DType::q4_k, slm::DType::q6_k};

std::string lower_case(std::string_view word) {
  std::string lower{word};
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lower;
}

slm::Perplexity measure(Loader& loader, const std::string& folder, const std::vector<slm::Token>& tokens,
                        const char* label) {
  slm::AnyModel model = loader.load(folder);
  ProgressBar bar(label);
  slm::PerplexityOptions options;
  options.progress = [&bar](double share) { bar(share); };
  return slm::perplexity(model, tokens, options);
}

/// The evaluation text; empty: none.
std::vector<slm::Token> tokens_of(const QuantizeCommand& command) {
  if (command.evaluate.empty()) return {};
  std::vector<slm::Token> tokens =
      slm::Tokenizer::from(slm::path_of(command.model)).encode(read_text(command.evaluate));
  if (command.most_tokens > 0 && tokens.size() > command.most_tokens) tokens.resize(command.most_tokens);
  return tokens;
}

void add_perplexity(OrderedJson& json, const QuantizeCommand& command, const std::vector<slm::Token>& tokens) {
  if (tokens.empty()) return;
  Loader loader(command.models);
  const slm::Perplexity before = measure(loader, command.model, tokens, "perplexity before");
  const slm::Perplexity after = measure(loader, command.output, tokens, "perplexity after");
  json["perplexity"] = {{"before", before.value()}, {"after", after.value()}, {"tokens", before.tokens}};
}

/// Results of the scale searches.
void add_folds(OrderedJson& json, const std::vector<slm::quantize::LayerReport>& layers) {
  std::size_t folds = 0, improved = 0;
  for (const auto& layer : layers) {
    for (const auto& fold : layer.folds) {
      ++folds;
      improved += fold.best < fold.rounded;
      json["losses"].push_back({{"layer", layer.layer},
                                {"fold", slm::quantize::name_of(fold.fold)},
                                {"rounded", fold.rounded},
                                {"best", fold.best},
                                {"duo", fold.chosen.duo},
                                {"ratio", static_cast<double>(fold.chosen.point) / slm::awq::grid_points}});
    }
  }
  json["folds"] = folds;
  json["folds_improved"] = improved;
}

std::string table_of(const OrderedJson& json) {
  std::ostringstream table;
  table << std::fixed;
  const auto row = [&](const char* label, auto before, auto after, int digits, const char* unit) {
    table << "  " << std::left << std::setw(26) << label << std::right << std::setprecision(digits) << std::setw(12)
          << before << std::setw(12) << after << unit << '\n';
  };
  table << std::setw(40) << "before" << std::setw(12) << "after" << '\n';
  const auto number = [&](const char* key, const char* when) { return json[key][when].get<double>(); };
  row("weights", number("bytes", "before") / 1e6, number("bytes", "after") / 1e6, 1, " MB");
  if (json.contains("perplexity")) {
    row("perplexity", number("perplexity", "before"), number("perplexity", "after"), 3, "");
  }
  if (json.contains("matrices")) {
    table << "  (matrices:";
    for (const auto& [type, count] : json["matrices"].items()) table << ' ' << count << ' ' << type;
    if (json.contains("folds")) {
      table << "; " << json["folds_improved"] << " of " << json["folds"] << " scale searches beat plain rounding";
    }
    table << "; " << std::setprecision(1) << json["seconds"].get<double>() << " s)\n";
    return table.str();
  }
  table << "  (" << json["folds_improved"] << " of " << json["folds"] << " scale searches beat plain rounding; group "
        << json["group"] << "; " << std::setprecision(1) << json["seconds"].get<double>() << " s; peak memory "
        << std::setprecision(0) << json["peak_mib"].get<double>() << " MiB)\n";
  for (const auto& layer : json["left_in_float"])
    table << "  left in floating point: " << layer.get<std::string>() << '\n';
  return table.str();
}

void write_gguf(const QuantizeCommand& command) {
  slm::quantize::GgufOptions options;
  for (const slm::DType type : gguf_types) {
    if (command.type == lower_case(slm::name_of(type))) options.type = type;
  }
  options.threads = slm::backend::Cpu(command.models.cpu).threads();
  options.calibration_text = slm::path_of(command.calibration);
  options.calibration = command.options.calibration;
  options.search_samples = command.options.search_samples;
  const std::vector<slm::Token> tokens = tokens_of(command);
  const auto began = std::chrono::steady_clock::now();
  slm::quantize::GgufReport report;
  {
    ProgressBar bar("quantizing");
    options.progress = [&](double share) { bar(share); };
    report = slm::quantize::write_gguf(slm::path_of(command.model), slm::path_of(command.output), options);
  }
  OrderedJson json;
  json["output"] = command.output;
  json["type"] = command.type;
  json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  json["bytes"] = {{"before", report.bytes_before}, {"after", report.bytes_after}};
  json["matrices"] = report.matrices;
  if (!report.layers.empty()) add_folds(json, report.layers);
  add_perplexity(json, command, tokens);
  command.json ? print_json(json) : print(table_of(json));
}

void quantize(QuantizeCommand& command) {
  const bool gguf = command.output.ends_with(".gguf");
  if (gguf != !command.type.empty()) {
    throw slm::Error("cli.gguf-type",
                     gguf ? "a GGUF file needs the type of its matrices"
                          : slm::text("'", command.output, "' is a folder, but --type is for GGUF files"),
                     "Use quantize MODEL OUT.gguf --type q4_k, or omit --type for an AWQ folder");
  }
  if (gguf) return write_gguf(command);
  slm::quantize::Options& options = command.options;
  options.output = command.format == "awq" ? slm::quantize::Output::awq : slm::quantize::Output::compressed_tensors;
  options.int8_head = command.head == "int8";
  options.search = !command.rtn;
  if (options.search && command.calibration.empty()) {
    throw slm::Error("cli.no-calibration", "quantization needs a calibration text",
                     "Use --calibration FILE, or --rtn for plain rounding");
  }
  const std::vector<slm::Token> tokens = tokens_of(command);
  const auto began = std::chrono::steady_clock::now();
  slm::quantize::Report report;
  double peak_mib = 0;
  {
    ProgressBar bar("quantizing");
    options.progress = [&](double share) {
      peak_mib = std::max(peak_mib, static_cast<double>(anonymous_bytes()) / (1 << 20));
      bar(share);
    };
    report = slm::quantize::quantize(slm::path_of(command.model), slm::path_of(command.output),
                                     slm::path_of(command.calibration), options, command.models.cpu);
  }
  OrderedJson json;
  json["output"] = command.output;
  json["group"] = report.group;
  json["samples"] = report.samples;
  json["sequence_length"] = report.sequence_length;
  json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  json["peak_mib"] = peak_mib;
  json["bytes"] = {{"before", report.bytes_before}, {"after", report.bytes_after}};
  add_folds(json, report.layers);
  json["left_in_float"] = report.left_in_float;
  add_perplexity(json, command, tokens);
  command.json ? print_json(json) : print(table_of(json));
}

}  // namespace

void add_quantize(CLI::App& program) {
  auto command = std::make_shared<QuantizeCommand>();
  slm::quantize::Options& options = command->options;
  CLI::App& app =
      *program.add_subcommand("quantize", "Convert a floating-point model to a 4-bit AWQ folder or a GGUF file");
  app.add_option("model", command->model, "floating-point model: a folder, or for GGUF output also a GGUF file")
      ->required();
  app.add_option("output", command->output, "folder or .gguf file to create; it must not exist")->required();
  std::vector<std::string> types;
  for (const slm::DType type : gguf_types) types.push_back(lower_case(slm::name_of(type)));
  auto* type = app.add_option("--type", command->type, "type of the matrices of a .gguf file");
  type->check(CLI::IsMember(types));
  app.add_option("--calibration", command->calibration,
                 "calibration text similar to the model's use: UTF-8, or .jsonl; for .gguf: optional, with q4_0 only");
  app.add_option("--evaluate", command->evaluate, "text to measure perplexity on, before and after");
  add_cache_options(app, command->models);
  add_whole_number(app, "--max-tokens", command->most_tokens, "tokens of the evaluation text; 0: all");
  app.add_option("--group", options.group,
                 "inputs per scale; -1: whole rows; 0: the largest of 128, 64 and 32 that fits")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str();
  app.add_option("--format", command->format, "awq (AutoAWQ gemm) or compressed-tensors (pack-quantized)")
      ->check(CLI::IsMember({"awq", "compressed-tensors"}))
      ->capture_default_str();
  app.add_option("--head", command->head, "head of a folder: float, or int8, which only slm reads")
      ->check(CLI::IsMember({"float", "int8"}))
      ->capture_default_str()
      ->excludes(type);
  app.add_flag("--symmetric", options.symmetric, "no zero points");
  app.add_option("--samples", options.calibration.samples, "sequences of the calibration text; 0: up to 32")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--sequence-length", options.calibration.sequence_length, "tokens per sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--search-samples", options.search_samples, "sequences used by the searches")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("!--no-clip", options.clip, "do not search clipping limits");
  app.add_flag("--rtn", command->rtn, "plain rounding to nearest, without a calibration text");
  app.add_option("--threads", command->models.cpu.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--json", command->json, "print one JSON object, with the losses of every search");
  app.callback([command] { quantize(*command); });
}

}  // namespace cli
