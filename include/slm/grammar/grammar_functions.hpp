// The functions of Grammar.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/grammar/characters.hpp"
#include "slm/grammar/compiled.hpp"
#include "slm/grammar/engine.hpp"
#include "slm/grammar/gbnf_parser.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/json_terminals.hpp"
#include "slm/grammar/json_text.hpp"
#include "slm/grammar/regex_parser.hpp"
#include "slm/grammar/schema_compiler.hpp"
#include "slm/grammar/text_list.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

namespace grammar {

/// Expressions with a limit of time, which make(expressions) fills; it returns the root.
template <class Make>
Compiled compile(const GrammarLimits& limits, Make&& make) {
  Compiled compiled{Expressions(limits)};
  Expressions& expressions = compiled.expressions;
  expressions.set_deadline(Deadline(limits.compile_seconds));
  const Expression root = make(compiled);
  compiled.root = Finisher(expressions).finish(root);
  expressions.set_deadline({});
  return compiled;
}

}  // namespace grammar

SLM_CONSTRUCTOR Grammar::Grammar(grammar::Compiled compiled)
    : pool_(std::make_shared<grammar::EnginePool>(std::move(compiled))) {}

SLM_INLINE Grammar Grammar::regex(std::string_view pattern, const GrammarLimits& limits) {
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    grammar::Characters characters(compiled.expressions);
    return compiled.expressions.leaf(
        grammar::RegexParser(compiled.expressions, characters, pattern, "regular expression").whole());
  }));
}

SLM_INLINE Grammar Grammar::json_schema(std::string_view schema, const JsonOptions& options,
                                        const GrammarLimits& limits) {
  grammar::JsonText parsed = grammar::JsonReader(schema, limits).read();
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    grammar::JsonTerminals terminals(compiled.expressions, options);
    compiled.json_character = terminals.characters().any();
    return grammar::SchemaCompiler(terminals, parsed).compile();
  }));
}

SLM_INLINE Grammar Grammar::json(const JsonOptions& options, const GrammarLimits& limits) {
  return json_schema(R"({"type": "object"})", options, limits);
}

SLM_INLINE Grammar Grammar::gbnf(std::string_view source, const GrammarLimits& limits) {
  return Grammar(grammar::compile(
      limits, [&](grammar::Compiled& compiled) { return grammar::GbnfParser(compiled.expressions, source).parse(); }));
}

SLM_INLINE Grammar Grammar::through(std::string_view end, const GrammarLimits& limits) {
  if (end.empty() || !utf8::is_valid(end)) {
    throw Error("grammar.choice", text(quote(end), " is empty or not UTF-8"), "Correct the text");
  }
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    grammar::Expressions& expressions = compiled.expressions;
    grammar::Characters characters(expressions);
    const grammar::Expression any = characters.any_text(), last = expressions.literal(end);
    const grammar::Expression before = expressions.sequence({any, last, characters.any(), any});
    return expressions.leaf(expressions.both({expressions.sequence(any, last), expressions.complement(before)}));
  }));
}

SLM_INLINE Grammar Grammar::sequence(std::span<const Grammar> parts, const GrammarLimits& limits) {
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    grammar::Expression whole = grammar::empty;
    for (std::size_t i = parts.size(); i-- > 0;) {
      whole = compiled.expressions.sequence(grammar::add(compiled, parts[i].pool_->compiled()), whole);
    }
    return whole;
  }));
}

SLM_INLINE Grammar Grammar::any_of(std::span<const Grammar> parts, const GrammarLimits& limits) {
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    std::vector<grammar::Expression> forms;
    for (const Grammar& part : parts) forms.push_back(grammar::add(compiled, part.pool_->compiled()));
    return compiled.expressions.either(std::move(forms));
  }));
}

SLM_INLINE Grammar Grammar::choice(std::span<const std::string> texts, const GrammarLimits& limits) {
  if (texts.empty()) throw Error("grammar.choice", "the list of texts is empty", "Add at least one text");
  std::size_t bytes = 0;
  for (const std::string& one : texts) {
    bytes += one.size();
    if (!utf8::is_valid(one)) throw Error("grammar.choice", text(quote(one), " is not UTF-8"), "Correct the text");
  }
  if (bytes > limits.text) grammar::fail_limit(text("the texts have more than ", limits.text, " bytes"));
  return Grammar(grammar::compile(limits, [&](grammar::Compiled& compiled) {
    return compiled.expressions.leaf(
        grammar::one_of_texts(compiled.expressions, std::vector<std::string>(texts.begin(), texts.end())));
  }));
}

}}
