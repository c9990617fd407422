// slm embed: embeds texts as vectors of hidden states.
#include <memory>
#include <optional>

#include "cli.hpp"
#include "slm/engine.hpp"
#include "tools/cli/pooling.hpp"
#include "tools/cli/unit_length.hpp"

namespace cli {

namespace {

struct EmbedOptions {
  std::string model;
  std::vector<std::string> texts, ids;
  std::string text_file, texts_file;
  ModelOptions models;
  std::optional<slm::Pooling> pooling;  // empty: as the model declares
  bool normalize = false, json = false;
};

/// Lines of a file, at least one; the last may lack a line break.
std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::size_t first = 0;
  do {
    const std::size_t end = std::min(file.find('\n', first), file.size());
    lines.push_back(file.substr(first, end - first));
    first = end + 1;
  } while (first < file.size());
  return lines;
}

std::vector<std::vector<slm::Token>> tokens_of(const EmbedOptions& options) {
  std::vector<std::vector<slm::Token>> tokens;
  for (const std::string& ids : options.ids) parse_ids(ids, tokens.emplace_back());
  if (tokens.empty()) {
    std::vector<std::string> texts = options.texts;
    if (!options.text_file.empty()) texts = {read_text(options.text_file)};
    if (!options.texts_file.empty()) texts = lines_of(read_text(options.texts_file));
    const auto tokenizer = slm::Tokenizer::from(slm::path_of(options.model));
    for (const std::string& text : texts) tokens.push_back(tokenizer.encode(text));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty()) continue;
    throw slm::Error("cli.empty-text", slm::text("text ", i + 1, " of ", tokens.size(), " has no tokens"),
                     "Remove it, or write a text");
  }
  return tokens;
}

void embed(const EmbedOptions& options) {
  const PoolingChoice choice =
      options.pooling ? PoolingChoice{.pooling = *options.pooling} : choose_pooling(slm::path_of(options.model));
  const std::vector<std::vector<slm::Token>> texts = tokens_of(options);
  Loader loader(options.models);
  const slm::AnyModel model = loader.load(options.model);
  slm::Engine engine{slm::Drafter{}, model, {.max_requests = texts.size()}};
  std::vector<slm::Answer> answers;
  for (const std::vector<slm::Token>& tokens : texts)
    answers.push_back(engine.submit({.prompt = tokens, .pooling = choice.pooling}));
  engine.run();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    answers[i].next();  // returns no token, but may throw the error
    std::vector<float> embedding = answers[i].embedding();
    if (options.normalize || choice.normalize) to_unit_length(embedding);
    std::string out = options.json ? "{\"embedding\":" : "";
    append_numbers(out, embedding);
    if (options.json) out += slm::text(",\"tokens\":", texts[i].size(), "}");
    print(out + "\n");
  }
}

}  // namespace

void add_embed(CLI::App& program) {
  auto options = std::make_shared<EmbedOptions>();
  CLI::App& command = *program.add_subcommand("embed", "Print an embedding for each text");
  command.add_option("model", options->model, "folder of the model")->required();
  auto& input = *command.add_option_group("input", "one of");
  const auto add_each = [&input](const char* name, std::vector<std::string>& values, const char* help) {
    return input.add_option(name, values, help)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  add_each("--text", options->texts, "a text; several are embedded in one batch, with unchanged results");
  input.add_option("--text-file", options->text_file, "a file with one text");
  input.add_option("--texts-file", options->texts_file, "a file with one text per line");
  add_each("--ids", options->ids, "token ids of a text: 1,5,7; may be repeated")->check([](const std::string& text) {
    std::vector<slm::Token> ids;
    return parse_ids(text, ids) ? "" : "expected token ids like 1,5,7";
  });
  input.require_option(1);
  command
      .add_option_function<std::string>(
          "--pooling",
          [options](const std::string& pooling) {
            options->pooling = pooling == "last" ? slm::Pooling::last : slm::Pooling::mean;
          },
          "pooling of a text's final hidden states: mean, or last token; default: as the model declares, else mean")
      ->check(CLI::IsMember({"mean", "last"}));
  command.add_flag("--normalize", options->normalize,
                   "normalise each vector to length 1; a model may declare it, which --pooling overrides");
  add_model_options(command, options->models);
  command.add_flag("--json", options->json, "print one JSON object per text: embedding, tokens");
  command.callback([options] { embed(*options); });
}

}  // namespace cli
