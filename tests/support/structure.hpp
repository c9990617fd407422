// Grammars and texts of the fixtures for structured output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/grammar.hpp"
#include "tests/support/paths.hpp"

namespace slm::testing {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson structure(const std::string& name) {
  return OrderedJson::parse(std::ifstream(fixture("structure/" + name)));
}

/// The grammar of a row with kind, grammar and whitespace.
inline Grammar grammar_of(const OrderedJson& row) {
  const std::string kind = row["kind"];
  const OrderedJson& written = row.contains("grammar") ? row["grammar"] : row["text"];
  if (kind == "choice") return Grammar::choice(written.get<std::vector<std::string>>());
  if (kind == "regex") return Grammar::regex(written.get<std::string>());
  if (kind == "gbnf") return Grammar::gbnf(written.get<std::string>());
  JsonOptions options;
  options.compact = row.contains("whitespace") && row["whitespace"] == "compact";
  return Grammar::json_schema(written.is_string() ? written.get<std::string>() : written.dump(), options);
}

struct Taken {
  std::size_t bytes;
  bool accepted;
};

/// Takes a text byte by byte.
inline Taken take(const Grammar& grammar, std::string_view text) {
  Constraint constraint(grammar);
  std::size_t bytes = 0;
  while (bytes < text.size() && constraint.advance(text.substr(bytes, 1)) == 1) ++bytes;
  return {bytes, bytes == text.size() && constraint.may_end()};
}

/// Like take(), in one call.
inline Taken take_whole(const Grammar& grammar, std::string_view text) {
  Constraint constraint(grammar);
  const std::size_t bytes = constraint.advance(text);
  return {bytes, bytes == text.size() && constraint.may_end()};
}

inline std::vector<std::uint64_t> mask_of(const Constraint& constraint, const TokenTrie& tokens) {
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  constraint.mask(tokens, bits);
  return bits;
}

inline bool allows(std::span<const std::uint64_t> bits, std::size_t token) {
  return (bits[token / 64] >> token % 64 & 1) != 0;
}

}  // namespace slm::testing
