// Grammar: the texts that an answer may be.
#pragma once

#include "slm/core/implementation_order.inc"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"
#include "slm/grammar/limits.hpp"

namespace slm { inline namespace v0_1 {

namespace grammar {
struct Compiled;
class EnginePool;
}

/// Where JSON permits white space.
struct JsonOptions {
  bool compact = false;  // no white space at all
  /// A regular expression; default: "(| |\n{1,2}[ \t]{0,20})".
  std::optional<std::string> whitespace_pattern = std::nullopt;
};

/// Immutable and cheap to copy: copies share one state. All functions may be called from several threads.
/// Every function that compiles throws Error ("grammar.…").
class Grammar {
 public:
  /// A JSON value that fits the schema (draft 2020-12 or 7).
  static Grammar json_schema(std::string_view schema, const JsonOptions& options = {},
                             const GrammarLimits& limits = {});

  /// Any JSON object.
  static Grammar json(const JsonOptions& options = {}, const GrammarLimits& limits = {});

  /// A text that matches as a whole.
  static Grammar regex(std::string_view pattern, const GrammarLimits& limits = {});

  /// One of the texts.
  static Grammar choice(std::span<const std::string> texts, const GrammarLimits& limits = {});

  /// A text of the rule `root` of a grammar in llama.cpp's syntax.
  static Grammar gbnf(std::string_view grammar, const GrammarLimits& limits = {});

  /// Any text up to its first `end`.
  static Grammar through(std::string_view end, const GrammarLimits& limits = {});

  /// A text of each grammar, one behind the other.
  static Grammar sequence(std::span<const Grammar> parts, const GrammarLimits& limits = {});

  /// A text of one of the grammars.
  static Grammar any_of(std::span<const Grammar> parts, const GrammarLimits& limits = {});

 private:
  friend class Constraint;

  explicit Grammar(grammar::Compiled compiled);

  std::shared_ptr<grammar::EnginePool> pool_;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_grammar_grammar_hpp)
}}}

#if SLM_COMPILES
#include "slm/grammar/grammar_functions.hpp"
#endif
