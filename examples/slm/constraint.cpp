// The options of generate that constrain its answers.
#include <string_view>
#include <vector>

#include "cli.hpp"
#include "slm/grammar.hpp"

namespace cli {

void add_constraint_options(CLI::App& command, ConstraintOptions& options) {
  command.add_option("--json-schema", options.schema_file,
                     "the answer is a JSON value that fits the schema of this file");
  command.add_flag("--json-object", options.json_object, "the answer is a JSON object");
  command.add_option("--regex", options.regex, "the answer matches this regular expression as a whole");
  command.add_option("--choice", options.choice, "the answer is one of these texts, separated by commas");
  command.add_option("--grammar", options.grammar_file,
                     "the answer is a text of the grammar of this file, in llama.cpp's syntax");
  add_whitespace_option(command, options.whitespace);
}

void add_whitespace_option(CLI::App& command, std::string& whitespace) {
  command.add_option("--whitespace", whitespace, "white space of JSON: compact is none")
      ->check(CLI::IsMember({"compact", "default"}));
}

slm::ConstraintRef make_constraint(const ConstraintOptions& options, const std::string& tokenizer) {
  const int constraints = (options.schema_file ? 1 : 0) + (options.json_object ? 1 : 0) + (options.regex ? 1 : 0) +
                          (options.choice ? 1 : 0) + (options.grammar_file ? 1 : 0);
  if (constraints == 0) return nullptr;
  if (constraints > 1) {
    throw slm::Error("cli.two-constraints",
                     slm::text("expected at most one constraint of the answer, found ", constraints),
                     "Use one of --json-schema, --json-object, --regex, --choice and --grammar");
  }
  const slm::JsonOptions json{.compact = options.whitespace == "compact"};
  const auto grammar = [&] {
    if (options.schema_file) return slm::Grammar::json_schema(read_file(*options.schema_file), json);
    if (options.grammar_file) return slm::Grammar::gbnf(read_file(*options.grammar_file));
    if (options.regex) return slm::Grammar::regex(*options.regex);
    if (options.json_object) return slm::Grammar::json(json);
    std::vector<std::string> texts(1);
    for (const char letter : *options.choice) {
      if (letter == ',') {
        texts.emplace_back();
      } else {
        texts.back().push_back(letter);
      }
    }
    return slm::Grammar::choice(texts);
  };
  return slm::constrain(grammar(), slm::TokenTrie(slm::Tokenizer::from(slm::path_of(tokenizer))));
}

}  // namespace cli
