// SentencePiece's byte-pair models with byte fallback (the Llama-2 family): merges and treatment of spaces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

struct SentencePiece {
  enum Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score = 0;
  std::uint64_t type = normal;
};

inline constexpr std::size_t longest_piece = 512;  // bytes; SentencePiece's own default limit is 16 characters

/// SentencePiece merges by the score of the result. This lists, as Hugging Face's converter does, every pair of pieces
/// that forms a piece: best score first, then the longer left and right part, then piece by piece and part by part.
inline MergeTable merges_of(const std::vector<SentencePiece>& pieces, const Vocabulary& vocabulary) {
  struct Candidate {
    float score;
    std::uint32_t left_length, right_length;  // characters
    Token left, right, merged;
  };
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const std::string_view whole = pieces[index].text;
    const auto length = static_cast<std::uint32_t>(utf8::count(whole));
    std::size_t cut = 0;
    for (std::uint32_t left_length = 1; left_length < length; ++left_length) {
      utf8::next(whole, cut);
      const auto left = vocabulary.find(whole.substr(0, cut));
      const auto right = left ? vocabulary.find(whole.substr(cut)) : std::nullopt;
      if (right)
        candidates.push_back(
            {pieces[index].score, left_length, length - left_length, *left, *right, static_cast<Token>(index)});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left_length != b.left_length) return a.left_length > b.left_length;
    if (a.right_length != b.right_length) return a.right_length > b.right_length;
    return std::tuple{a.merged, a.left, a.right} < std::tuple{b.merged, b.left, b.right};
  });
  MergeTable table(candidates.size());
  std::uint32_t rank = 0;
  for (const Candidate& candidate : candidates) table.add(candidate.left, candidate.right, {rank++, candidate.merged});
  return table;
}

/// Where a model of the Llama-2 family wants a space that the text does not have.
enum class LeadingSpace {
  every_piece,  // before the text and after every special token: Hugging Face's "legacy"
  first_piece,  // before the text
  never,
};

/// The treatment of spaces in each stretch of text between special tokens.
struct SpaceRules {
  LeadingSpace leading = LeadingSpace::every_piece;
  bool remove_extra = false;  // see without_extra_spaces()
  bool escape = true;         // pieces write a space as ▁
};

inline void add_llama_pipeline(TokenizerParts& parts, const SpaceRules& rules) {
  const std::string underline = "▁";
  const std::string space = rules.escape ? underline : " ";
  if (rules.remove_extra) parts.normalizer.add(Normalizer::ExtraSpaces{space});
  if (rules.leading == LeadingSpace::first_piece) {
    parts.pre_tokenizer.add(PreTokenizer::Metaspace{space, PreTokenizer::Metaspace::Prepend::first, false});
  } else {
    if (rules.leading == LeadingSpace::every_piece) parts.normalizer.add(Normalizer::Prepend{space});
    parts.normalizer.add(Normalizer::Replace{" ", space});
  }
  parts.decoder.replaces = {{underline, " "}};
  parts.decoder.byte_fallback = true;
  parts.decoder.strip_content = " ";
  parts.decoder.strip_count = rules.remove_extra ? ~std::size_t{0} : rules.leading == LeadingSpace::never ? 0 : 1;
}

}}}
