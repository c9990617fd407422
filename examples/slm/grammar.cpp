// slm grammar: checks texts against a grammar, and prints masks.
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>

#include "cli.hpp"
#include "slm/core/sha256.hpp"
#include "slm/grammar.hpp"
#include "slm/io/json.hpp"

namespace cli {

namespace {

constexpr int does_not_compile = 2;

struct GrammarOptions {
  std::string schema_file, regex, choice_file, gbnf_file, whitespace = "default";
  bool json = false;
  std::string text_file, lines_file, model, prefix_file;
};

std::vector<std::string> read_texts(const std::string& path) {
  const slm::OwnedJson list = slm::parse_json(read_file(path), path);
  std::vector<std::string> texts;
  bool only_texts = list.is_array();
  for (std::size_t i = 0; only_texts && i < list.size(); ++i) {
    only_texts = list[i].is_string();
    if (only_texts) texts.push_back(list[i].get<std::string>());
  }
  if (!only_texts) {
    throw slm::Error("cli.bad-texts", slm::text("expected a JSON list of texts in ", slm::quote(path)),
                     "Write it like [\"yes\", \"no\"]");
  }
  return texts;
}

slm::Grammar compiled(const GrammarOptions& options) {
  const slm::JsonOptions json{.compact = options.whitespace == "compact"};
  if (!options.schema_file.empty()) return slm::Grammar::json_schema(read_file(options.schema_file), json);
  if (options.json) return slm::Grammar::json(json);
  if (!options.choice_file.empty()) return slm::Grammar::choice(read_texts(options.choice_file));
  if (!options.gbnf_file.empty()) return slm::Grammar::gbnf(read_file(options.gbnf_file));
  return slm::Grammar::regex(options.regex);
}

/// Failures before the check of a text have a separate exit status.
template <class Make>
auto or_status(int status, Make&& make) {
  try {
    return make();
  } catch (const slm::Error& error) {
    std::cerr << "slm: " << error.what() << '\n';
    throw CLI::RuntimeError(status);
  }
}

struct Checked {
  bool accepted;
  std::size_t offset;
};

Checked check(const slm::Grammar& grammar, const std::string& text) {
  slm::Constraint constraint(grammar);
  const std::size_t offset = constraint.advance(text);
  return {offset == text.size() && constraint.may_end(), offset};
}

void check_texts(const GrammarOptions& options) {
  const auto grammar = or_status(does_not_compile, [&] { return compiled(options); });
  if (!options.lines_file.empty()) {
    OrderedJson results = OrderedJson::array();
    for (const std::string& text : or_status(does_not_compile, [&] { return read_texts(options.lines_file); })) {
      const Checked checked = check(grammar, text);
      results.push_back({{"accepted", checked.accepted}, {"offset", checked.offset}});
    }
    print_json(results);
  }
  if (options.text_file.empty()) return;
  const std::string text = or_status(does_not_compile, [&] { return read_file(options.text_file); });
  const Checked checked = check(grammar, text);
  if (checked.accepted) return;
  throw slm::Error("cli.rejected",
                   checked.offset < text.size() ? slm::text("the grammar refuses the byte at ", checked.offset)
                                                : slm::text("the text of ", checked.offset, " bytes is not complete"),
                   "Change the text or the grammar");
}

void print_mask(const GrammarOptions& options) {
  const auto grammar = or_status(does_not_compile, [&] { return compiled(options); });
  const slm::TokenTrie tokens(slm::Tokenizer::from(slm::path_of(options.model)), {});
  slm::Constraint constraint(grammar);
  const std::string prefix = read_file(options.prefix_file);
  if (const std::size_t taken = constraint.advance(prefix); taken < prefix.size()) {
    throw slm::Error("cli.rejected", slm::text("the grammar refuses the byte at ", taken, " of the prefix"),
                     "Use the beginning of a text that fits");
  }
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  constraint.mask(tokens, bits);
  slm::detail::Sha256 digest;
  std::size_t count = 0;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if ((bits[id / 64] >> id % 64 & 1) == 0) continue;
    ++count;
    const char bytes[] = {static_cast<char>(id), static_cast<char>(id >> 8), static_cast<char>(id >> 16),
                          static_cast<char>(id >> 24)};
    digest.update(std::string_view{bytes, sizeof bytes});
  }
  print_json({{"count", count},
              {"digest", digest.finish().substr(0, 16)},
              {"may_end", constraint.may_end()},
              {"forced", constraint.forced()}});
}

void add_grammars(CLI::App& command, GrammarOptions& options) {
  auto& kinds = *command.add_option_group("grammar");
  kinds.add_option("--json-schema", options.schema_file, "JSON values that fit the schema of this file");
  kinds.add_flag("--json", options.json, "any JSON object");
  kinds.add_option("--regex", options.regex, "texts that match this regular expression as a whole");
  kinds.add_option("--choice-file", options.choice_file, "the texts of this JSON list");
  kinds.add_option("--gbnf", options.gbnf_file, "texts of this grammar, in llama.cpp's syntax");
  kinds.require_option(1);
  add_whitespace_option(command, options.whitespace);
}

}  // namespace

void add_grammar(CLI::App& program) {
  auto options = std::make_shared<GrammarOptions>();
  CLI::App& command = *program.add_subcommand("grammar", "Check texts against a grammar, or print a mask");
  command.require_subcommand(1);
  CLI::App& check = *command.add_subcommand(
      "check", "Check texts: exit status 0 accepted, 1 rejected, 2 the grammar does not compile");
  add_grammars(check, *options);
  auto& text = *check.add_option("--text", options->text_file, "file with one text");
  check.add_option("--lines", options->lines_file, "JSON list of texts; prints a JSON list of results")
      ->excludes(&text);
  check.callback([options] { check_texts(*options); });
  CLI::App& mask = *command.add_subcommand("mask", "Print count and digest of the tokens that may follow a prefix");
  mask.add_option("--model", options->model, "model (folder or GGUF file), or its tokenizer file")->required();
  add_grammars(mask, *options);
  mask.add_option("--prefix", options->prefix_file, "file with the text so far")->required();
  mask.callback([options] { print_mask(*options); });
}

}  // namespace cli
