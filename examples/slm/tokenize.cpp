// slm tokenize: converts text to token ids and back.
#include <memory>

#include "cli.hpp"
#include "slm/io/json.hpp"

namespace cli {

namespace {

struct TokenizeOptions {
  std::string model;
  bool decode = false;
  bool no_special_tokens = false;
  bool keep_special_tokens = false;
  bool json = false;
};

std::vector<slm::Token> parse_ids(const std::string& text, const slm::Tokenizer& tokenizer) {
  const auto refuse = [](const std::string& found) {
    return slm::Error("cli.bad-ids",
                      slm::text("expected a JSON list of token ids on standard input, found that ", found),
                      "Write it like [1, 5, 7]");
  };
  const slm::Json json = slm::parse_json(text, "standard input");
  if (!json.is_array()) throw refuse(json.type_name());
  std::vector<slm::Token> ids;
  ids.reserve(json.size());
  for (const auto& item : json) {
    if (!item.is_number_integer()) throw refuse(slm::text("one item is of type ", item.type_name()));
    if (!slm::is_index(item, static_cast<std::uint64_t>(tokenizer.vocab()))) {
      throw slm::Error(
          "cli.id-out-of-range",
          slm::text("id ", slm::quote_json(item), " is outside the tokenizer's 0 to ", tokenizer.vocab() - 1),
          "Use ids of this tokenizer");
    }
    ids.push_back(item.get<slm::Token>());
  }
  return ids;
}

void tokenize(const TokenizeOptions& options) {
  const auto tokenizer = slm::Tokenizer::from(slm::path_of(options.model));
  const std::string input = read_standard_input();
  if (options.decode) {
    const std::vector<slm::Token> ids = parse_ids(input, tokenizer);
    const std::string text = tokenizer.decode(ids, !options.keep_special_tokens);
    options.json ? print_json({{"ids", ids}, {"text", text}}) : print(text);
  } else {
    const std::vector<slm::Token> ids = tokenizer.encode(input, !options.no_special_tokens);
    options.json ? print_json({{"ids", ids}}) : print_json(ids);
  }
}

}  // namespace

void add_tokenize(CLI::App& program) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App& command = *program.add_subcommand("tokenize", "Convert text on stdin to a JSON list of token ids");
  command.add_option("model", options->model, "model (folder or GGUF file), or its tokenizer file")->required();
  command.add_flag("--decode", options->decode, "convert a JSON list of ids on stdin to text");
  command.add_flag("--no-special-tokens", options->no_special_tokens,
                   "do not add the model's special tokens around a text, such as <s>");
  command.add_flag("--keep-special-tokens", options->keep_special_tokens, "with --decode: also print special tokens");
  command.add_flag("--json", options->json, "print one JSON object: ids, and text with --decode");
  command.callback([options] { tokenize(*options); });
}

}  // namespace cli
