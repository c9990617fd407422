// Reads tokenizer.model, SentencePiece's protobuf, for byte-pair models with byte fallback (the Llama-2 family).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/io/protobuf.hpp"
#include "slm/text/sentencepiece.hpp"
#include "slm/text/tokenizer_json.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  std::uint64_t model_type = 1;     // 1 unigram, 2 BPE
  bool space_as_suffix = false;     // words end with their space instead of beginning with it
  bool has_character_map = false;   // the normalizer rewrites characters
  bool add_dummy_prefix = true;     // a text begins with a space
  bool remove_extra_spaces = true;  // see without_extra_spaces()
  bool escape_spaces = true;        // pieces write a space as ▁
};

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
