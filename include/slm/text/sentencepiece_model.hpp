// Reads tokenizer.model, SentencePiece's protobuf, for byte-pair models with byte fallback (the Llama-2 family).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/io/protobuf.hpp"
#include "slm/text/tokenizer_json.hpp"
#include "slm/text/tokenizer_parts.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

struct SentencePiece {
  enum Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score = 0;
  std::uint64_t type = normal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  std::uint64_t model_type = 1;     // 1 unigram, 2 BPE
  bool space_as_suffix = false;     // words end with their space instead of beginning with it
  bool has_character_map = false;   // the normalizer rewrites characters
  bool add_dummy_prefix = true;     // a text begins with a space
  bool remove_extra_spaces = true;  // see without_extra_spaces()
  bool escape_spaces = true;        // pieces write a space as ▁
};

inline constexpr std::size_t longest_piece = 512;  // bytes; SentencePiece's own default limit is 16 characters

inline SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  ProtobufReader reader(bytes, file);
  const auto want = [&reader](const ProtobufReader::Field& field, int wire_type) {
    if (field.wire_type != wire_type) {
      reader.broken(text("field ", field.number, " has wire type ", field.wire_type, ", expected ", wire_type));
    }
  };
  while (const auto field = reader.next()) {
    if (field->number < 1 || field->number > 3) continue;
    want(*field, 2);
    ProtobufReader inner(field->bytes, file);
    SentencePiece piece;
    while (const auto part = inner.next()) {
      if (field->number == 1 && part->number == 1) want(*part, 2), piece.text = part->bytes;
      if (field->number == 1 && part->number == 2) {
        want(*part, 5);
        piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(part->value));
      }
      if (field->number == 1 && part->number == 3) want(*part, 0), piece.type = part->value;
      if (field->number == 2 && part->number == 3) want(*part, 0), model.model_type = part->value;
      if (field->number == 2 && part->number == 24) want(*part, 0), model.space_as_suffix = part->value != 0;
      if (field->number == 3 && part->number == 2) want(*part, 2), model.has_character_map = !part->bytes.empty();
      if (field->number == 3 && part->number == 3) want(*part, 0), model.add_dummy_prefix = part->value != 0;
      if (field->number == 3 && part->number == 4) want(*part, 0), model.remove_extra_spaces = part->value != 0;
      if (field->number == 3 && part->number == 5) want(*part, 0), model.escape_spaces = part->value != 0;
    }
    if (field->number != 1) continue;
    const std::string owner = text("piece ", model.pieces.size());
    if (piece.text.size() > longest_piece)
      reader.broken(text(owner, " has ", piece.text.size(), " bytes, at most ", longest_piece, " are expected"));
    if (!utf8::is_valid(piece.text)) reader.broken(text(owner, " is not UTF-8"));
    if (!std::isfinite(piece.score)) reader.broken(text(owner, " has a score that is no number"));
    model.pieces.push_back(piece);
  }
  return model;
}

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

/// tokenizer.model as parts. `config`: of the tokenizer_config.json beside it, or as default-constructed.
inline TokenizerParts read_tokenizer_model(std::string_view bytes, const std::string& file,
                                           const TokenizerConfig& config) {
  // Llama-3's tokenizer.model is another format: lines of base64 and rank.
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  if (line.size() < 100 && line.ends_with(" 0") &&
      line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= ") == line.npos) {
    fail("tokenizer.tiktoken-model", file, "it is a tiktoken vocabulary, not a SentencePiece model",
         "Put the model's tokenizer.json (Hugging Face format) into the folder");
  }
  const SentencePieceModel model = read_sentencepiece(bytes, file);
  if (model.pieces.empty()) fail("tokenizer.empty-vocabulary", file, "it holds no piece", download_again);
  const auto refuse = [&file](const std::string& what) {
    fail("tokenizer.unsupported", file, text(what, " is not supported"),
         "Put the model's tokenizer.json (Hugging Face format) into the folder");
  };
  if (model.model_type != 2) refuse(text("SentencePiece model type ", model.model_type, " instead of 2 (BPE)"));
  if (model.has_character_map) refuse("a character map in the normalizer");
  if (model.space_as_suffix) refuse("white space as the end of a word");
  TokenizerParts parts;
  parts.vocabulary = Vocabulary(model.pieces.size());
  Bpe::Options options;
  options.fuse_unknown = true;
  options.byte_fallback = true;
  std::optional<Token> begin, end;
  for (std::size_t index = 0; index < model.pieces.size(); ++index) {
    const SentencePiece& piece = model.pieces[index];
    const Token id = checked_id(static_cast<std::int64_t>(index), model.pieces.size(), file, shown(piece.text));
    add_token(parts.vocabulary, piece.text, id, file);
    if (piece.type == SentencePiece::unknown && !options.unknown) options.unknown = id;
    if (piece.type == SentencePiece::control && piece.text == "<s>") begin = id;
    if (piece.type == SentencePiece::control && piece.text == "</s>") end = id;
    if (piece.type == SentencePiece::unknown || piece.type == SentencePiece::control ||
        piece.type == SentencePiece::user_defined) {
      AddedToken token;
      token.id = id;
      token.content = piece.text;
      token.special = piece.type != SentencePiece::user_defined;
      add_added_token(parts, std::move(token), file);
    }
  }
  parts.bpe = Bpe(parts.vocabulary, merges_of(model.pieces, parts.vocabulary), options);
  const LeadingSpace leading = !model.add_dummy_prefix        ? LeadingSpace::never
                               : config.legacy.value_or(true) ? LeadingSpace::every_piece
                                                              : LeadingSpace::first_piece;
  add_llama_pipeline(parts, {leading, model.remove_extra_spaces, model.escape_spaces});
  const auto wanted = [&file](std::optional<Token> token, std::string_view name) {
    if (!token)
      fail("tokenizer.missing-special-token", file, text("it has no control piece ", shown(name)), download_again);
    return *token;
  };
  if (config.add_bos.value_or(true)) parts.before.push_back(wanted(begin, "<s>"));
  if (config.add_eos.value_or(false)) parts.after.push_back(wanted(end, "</s>"));
  return parts;
}

}}}
