// TokenizerParts: what a tokenizer file describes, in the library's own terms, and the errors of reading one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/text/added_tokens.hpp"
#include "slm/text/bpe.hpp"
#include "slm/text/decoder.hpp"
#include "slm/text/normalizer.hpp"
#include "slm/text/pre_tokenizer.hpp"
#include "slm/text/utf8.hpp"
#include "slm/text/vocabulary.hpp"

namespace slm { inline namespace v0_1 {

struct TokenizerParts {
  Vocabulary vocabulary;  // the model's own tokens
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<AddedToken> added;
  Vocabulary added_names;            // their contents and ids, which each appear once
  std::vector<Token> before, after;  // special tokens around an encoded text
};

namespace tokenizer_file {

[[noreturn]] inline void fail(std::string_view id, const std::string& file, std::string_view what,
                              std::string_view mend) {
  throw Error(id, text(file, ": ", what), mend);
}

inline constexpr std::string_view download_again = "Download the file again";

/// Checks an id from a file. `count`: tokens the file may hold, which bounds the gaps between ids.
inline Token checked_id(std::int64_t id, std::size_t count, const std::string& file, std::string_view owner) {
  const std::int64_t limit = std::min(Vocabulary::id_limit, static_cast<std::int64_t>(count) + Vocabulary::most_gaps);
  if (id < 0 || id >= limit) {
    fail("tokenizer.bad-id", file, text("the id of ", owner, " is ", id, ", expected 0 to ", limit - 1),
         download_again);
  }
  return static_cast<Token>(id);
}

/// A token's text for a message: shortened, with control characters and non-UTF-8 bytes replaced.
inline std::string shown(std::string_view content) {
  std::string out;
  utf8::append_lossy(out, content.substr(0, 60));
  for (char& byte : out) {
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f) byte = '?';
  }
  return text("'", out, content.size() > 60 ? "...'" : "'");
}

inline void add_token(Vocabulary& vocabulary, std::string_view content, Token id, const std::string& file) {
  if (vocabulary.add(content, id)) return;
  const bool id_taken = vocabulary.contains(id);
  const std::string found =
      id_taken ? text("id ", id, " belongs to both ", shown(vocabulary.text(id)), " and ", shown(content))
               : text("token ", shown(content), " appears twice");
  fail(id_taken ? "tokenizer.duplicate-id" : "tokenizer.duplicate-token", file, found, download_again);
}

inline constexpr std::size_t longest_added_token = 1024;  // bytes; the search looks this far ahead at most

/// Adds an added token, which keeps the id that its content has in the model's vocabulary.
inline void add_added_token(TokenizerParts& parts, AddedToken token, const std::string& file) {
  if (token.content.size() > longest_added_token) {
    fail("tokenizer.long-token", file,
         text("the added token ", shown(token.content), " has ", token.content.size(), " bytes, at most ",
              longest_added_token, " are expected"),
         download_again);
  }
  if (const auto known = parts.vocabulary.find(token.content)) {
    token.id = *known;
  } else if (parts.vocabulary.contains(token.id)) {
    fail("tokenizer.duplicate-id", file,
         text("id ", token.id, " belongs to both ", shown(parts.vocabulary.text(token.id)), " and the added token ",
              shown(token.content)),
         download_again);
  }
  add_token(parts.added_names, token.content, token.id, file);
  parts.added.push_back(std::move(token));
}

/// Puts the merges of a file into a table, best first. `list`: the file's name of them, for errors.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, std::size_t expected, std::string file, std::string list)
      : vocabulary_(vocabulary), table_(expected), file_(std::move(file)), list_(std::move(list)) {}

  void add(std::string_view left, std::string_view right) {
    const Token left_id = token(left);
    const Token right_id = token(right);
    const Token merged = token(joined_.assign(left) += right);
    if (merged == left_id || merged == right_id) {
      fail("tokenizer.cyclic-merge", file_, text(place(), " merges into one of its own parts"), download_again);
    }
    table_.add(left_id, right_id, {rank_++, merged});
  }

  /// The next merge is no pair of tokens.
  [[noreturn]] void bad(std::string_view expected) const {
    fail("tokenizer.bad-merge", file_, text(place(), " is no pair of tokens, expected ", expected), download_again);
  }

  MergeTable take() { return std::move(table_); }

 private:
  std::string place() const { return text("'", list_, "[", rank_, "]'"); }

  Token token(std::string_view content) const {
    if (const auto id = vocabulary_.find(content)) return *id;
    fail("tokenizer.missing-merge-token", file_,
         text(place(), " needs ", shown(content), ", which is not in the vocabulary"), download_again);
  }

  const Vocabulary& vocabulary_;
  MergeTable table_;
  std::string file_, list_, joined_;
  std::uint32_t rank_ = 0;
};

}  // namespace tokenizer_file
}}
