// slm perplexity: measures how well a model predicts a text.
#include "slm/decode/perplexity.hpp"

#include <memory>
#include <sstream>

#include "cli.hpp"
#include "tools/cli/progress.hpp"

namespace cli {

namespace {

struct PerplexityCommand {
  std::string model, text, against;
  slm::PerplexityOptions options;
  std::uint64_t most_tokens = 0;
  ModelOptions models;
  bool json = false;
};

void measure(const PerplexityCommand& command) {
  Loader loader(command.models);
  slm::AnyModel model = loader.load(command.model);
  std::vector<slm::Token> tokens = slm::Tokenizer::from(slm::path_of(command.model)).encode(read_text(command.text));
  if (command.most_tokens > 0 && tokens.size() > command.most_tokens) tokens.resize(command.most_tokens);

  slm::PerplexityOptions options = command.options;
  ProgressBar bar("perplexity");
  options.progress = [&bar](double share) { bar(share); };
  slm::Divergence beside;
  slm::Perplexity result;
  if (command.against.empty()) {
    result = slm::perplexity(model, tokens, options);
  } else {
    beside = slm::divergence(model, loader.load(command.against), tokens, options);
    result = beside.model;
  }
  if (command.json) {
    OrderedJson json{{"perplexity", result.value()},
                     {"mean_negative_log_likelihood", result.mean()},
                     {"scored_tokens", result.tokens},
                     {"tokens", tokens.size()},
                     {"windows", result.windows},
                     {"window", result.window},
                     {"stride", options.stride == 0 ? result.window : options.stride}};
    if (!command.against.empty()) {
      json["against"] = {{"perplexity", beside.base.value()},
                         {"mean_divergence", beside.mean()},
                         {"divergence_99", beside.quantile(0.99)},
                         {"same_likeliest", beside.same_share()}};
    }
    print_json(json);
    return;
  }
  std::ostringstream lines;
  lines << "perplexity " << result.value() << " (" << result.tokens << " tokens scored in " << result.windows
        << " windows of up to " << result.window << ")\n";
  if (!command.against.empty()) {
    lines << "against " << command.against << ": perplexity " << beside.base.value() << ", divergence " << beside.mean()
          << " nats a token (of 99 % at most " << beside.quantile(0.99) << "), the same token likeliest at "
          << 100 * beside.same_share() << " %\n";
  }
  print(lines.str());
}

}  // namespace

void add_perplexity(CLI::App& program) {
  auto command = std::make_shared<PerplexityCommand>();
  CLI::App& app = *program.add_subcommand("perplexity", "Measure how well a model predicts a text");
  app.add_option("model", command->model, "model (folder or GGUF file)")->required();
  app.add_option("text", command->text, "a UTF-8 file")->required();
  app.add_option(
      "--against", command->against,
      "base model with the same vocabulary (folder or GGUF file): also prints the divergence of `model` from it");
  app.add_option("--window", command->options.window, "tokens per window, at most the model's context")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  app.add_option("--stride", command->options.stride, "tokens between window starts; 0: no overlap")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  add_whole_number(app, "--max-tokens", command->most_tokens, "use only the beginning of the text; 0: all");
  add_model_options(app, command->models);
  app.add_flag("--json", command->json, "print one JSON object");
  app.callback([command] { measure(*command); });
}

}  // namespace cli
