// The state that copies of a Tokenizer share, and its functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/io/left_out_format.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"
#if !defined(SLM_NO_FOLDERS)
#include "slm/text/sentencepiece_model.hpp"
#include "slm/text/tokenizer_json.hpp"
#endif
#if !defined(SLM_NO_GGUF)
#include "slm/io/gguf_file.hpp"
#include "slm/text/tokenizer_gguf.hpp"
#endif

namespace slm { inline namespace v0_1 {

struct Tokenizer::State {
  struct Range {
    std::size_t begin, end;
  };
  using Literals = std::vector<Range>;  // places of the literal parts, in order

  TokenizerParts parts;
  AddedTokens raw;         // searched for in the user's text
  AddedTokens normalized;  // searched for in the normalized text
  AddedTokens markers;     // `raw` and every special token: searched for in a text of parts
  Vocabulary special;
  Vocabulary control;

  explicit State(TokenizerParts from) : parts(std::move(from)) {
    std::vector<AddedToken> in_raw, in_normalized, in_parts;
    for (AddedToken token : parts.added) {
      if (token.special) special.add(token.content, token.id);
      if (token.special || (!token.normalized && !is_blank(token.content))) control.add(token.content, token.id);
      if (token.special || !token.normalized) in_parts.push_back(token);
      if (token.normalized) token.content = parts.normalizer(token.content);
      (token.normalized ? in_normalized : in_raw).push_back(std::move(token));
    }
    raw = AddedTokens(in_raw);
    normalized = AddedTokens(in_normalized);
    markers = AddedTokens(in_parts);
  }

  static bool is_blank(std::string_view content) {
    for (std::size_t position = 0; position < content.size();) {
      if (!unicode::is_space(utf8::next(content, position))) return false;
    }
    return true;
  }

  bool is_token(Token token) const { return parts.vocabulary.contains(token) || parts.added_names.contains(token); }
  bool is_control(Token token) const { return control.contains(token); }
  int vocab() const { return std::max(parts.vocabulary.id_end(), parts.added_names.id_end()); }

  std::string_view name_of(Token token) const {
    const auto& added = parts.added_names;
    return added.contains(token) ? added.text(token) : parts.vocabulary.text(token);
  }

  std::vector<Token> encode_whole(std::string_view whole, const Literals* literals, bool add_special_tokens) const {
    std::vector<Token> out;
    out.reserve(whole.size() / 3 + 8);
    if (add_special_tokens) out = parts.before;
    encode_text(whole, literals, out);
    if (add_special_tokens) out.insert(out.end(), parts.after.begin(), parts.after.end());
    return out;
  }

  void encode_text(std::string_view whole, const Literals* literals, std::vector<Token>& out) const {
    Bpe::Scratch scratch;
    PreTokenizer::Scratch words;
    const auto put = [&out](Token token) { out.push_back(token); };
    const auto word = [&](std::string_view piece) {
      const std::size_t before = out.size();
      parts.bpe.encode(parts.vocabulary, piece, out, scratch);
      if (literals != nullptr && spells_control(piece, {out.data() + before, out.size() - before})) {
        // The merges themselves arrived at a control token. Single characters cannot.
        out.resize(before);
        for (std::size_t begin = 0, end = 0; begin < piece.size(); begin = end) {
          utf8::next(piece, end);
          parts.bpe.encode(parts.vocabulary, piece.substr(begin, end - begin), out, scratch);
        }
      }
    };
    const auto raw_piece = [&](std::string_view piece) {
      std::string buffer;
      std::string_view normal = piece;
      if (!parts.normalizer.empty()) normal = buffer = parts.normalizer(piece);
      const auto normal_piece = [&](std::string_view part) {
        const bool at_start = piece.data() == whole.data() && part.data() == normal.data();
        parts.pre_tokenizer(part, at_start, words, word);
      };
      // In a text of parts the markers were found before: what normalization makes of literal text stays text.
      const auto no_control = [&](Token token, std::size_t, std::size_t) {
        return literals == nullptr || !is_control(token);
      };
      normalized.split(normal, normal_piece, put, no_control);
    };
    if (literals == nullptr) return raw.split(whole, raw_piece, put);
    const auto outside = [&](Token token, std::size_t begin, std::size_t end) {
      if (!is_control(token)) return true;
      const auto ends_before = [begin](const Range& range) { return range.end <= begin; };
      const auto next = std::partition_point(literals->begin(), literals->end(), ends_before);
      return next == literals->end() || next->begin >= end;
    };
    markers.split(whole, raw_piece, put, outside);
  }

  bool spells_control(std::string_view piece, std::span<const Token> tokens) const {
    return std::any_of(tokens.begin(), tokens.end(), [&](Token token) {
      return is_control(token) && piece.find(name_of(token)) != piece.npos;  // <unk> stands for what it does not spell
    });
  }
};

SLM_CONSTRUCTOR Tokenizer::Tokenizer(TokenizerParts parts) : state_(std::make_shared<const State>(std::move(parts))) {}

#if !defined(SLM_NO_FOLDERS)
namespace tokenizer_file {

/// Reads the tokenizer of a folder, tokenizer.json or tokenizer.model.
inline TokenizerParts read_folder(const std::filesystem::path& folder_or_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path path = folder_or_file;
  if (fs::is_directory(path, ignored)) {
    path = folder_or_file / "tokenizer.json";
    if (!file_exists(path)) path = folder_or_file / "tokenizer.model";
    if (!file_exists(path)) {
      throw Error("tokenizer.not-found",
                  text("'", folder_or_file.string(), "' has neither tokenizer.json nor tokenizer.model"),
                  "Copy tokenizer.json from the model's repository into the folder");
    }
  }
  const MappedFile file(path);
  const std::string_view source = file.text();
  const bool is_json = path.extension() == ".json";
  TokenizerParts parts;
  if (is_json) parts = read_tokenizer_json(source, path.string());
  TokenizerConfig config;
  const fs::path config_path = path.parent_path() / "tokenizer_config.json";
  const bool has_config = path.stem() == "tokenizer" && file_exists(config_path);
  if (has_config) {
    const std::size_t most = is_json ? parts.vocabulary.size() : source.size();
    config = read_mapped(
        config_path, [&](std::string_view text) { return read_tokenizer_config(text, config_path.string(), most); });
  }
  if (!is_json) parts = read_tokenizer_model(source, path.string(), config);
  file.check_unchanged();
  merge_added_tokens(parts, config, config_path.string());
  return parts;
}

}  // namespace tokenizer_file
#endif

SLM_INLINE Tokenizer Tokenizer::from(const std::filesystem::path& folder_or_file) {
#if defined(SLM_NO_GGUF)
  if (first_bytes(folder_or_file, 4) == "GGUF") throw detail::left_out_format(folder_or_file);
#else
  if (const auto file = gguf_of(folder_or_file)) {
    return read_gguf_fields(*file, [](const GgufFields& fields) { return parse(fields); });
  }
#endif
#if defined(SLM_NO_FOLDERS)
  throw detail::left_out_format(folder_or_file);
#else
  return Tokenizer(tokenizer_file::read_folder(folder_or_file));
#endif
}

#if !defined(SLM_NO_FOLDERS)
SLM_INLINE Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(tokenizer_file::read_tokenizer_json(json, name));
}

SLM_INLINE Tokenizer Tokenizer::parse_model(std::string_view bytes, const std::string& name) {
  return Tokenizer(tokenizer_file::read_tokenizer_model(bytes, name, {}));
}
#endif

#if !defined(SLM_NO_GGUF)
SLM_INLINE Tokenizer Tokenizer::parse(const GgufFields& fields) {
  return Tokenizer(tokenizer_file::read_tokenizer_gguf(fields));
}
#endif

SLM_INLINE std::vector<Token> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
  std::string repaired;
  if (!utf8::is_valid(utf8)) {
    utf8::append_lossy(repaired, utf8);
    utf8 = repaired;
  }
  return state_->encode_whole(utf8, nullptr, add_special_tokens);
}

SLM_INLINE std::vector<Token> Tokenizer::encode(std::span<const TextPart> parts, bool add_special_tokens) const {
  std::string whole;
  State::Literals literals;
  for (const TextPart& part : parts) {
    const std::size_t begin = whole.size();
    utf8::append_lossy(whole, part.text);
    if (part.literal && whole.size() > begin) literals.push_back({begin, whole.size()});
  }
  return state_->encode_whole(whole, &literals, add_special_tokens);
}

SLM_INLINE std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special_tokens) const {
  std::string out;
  DecodeState state(state_->parts.decoder);
  for (const Token token : tokens) {
    if (is_token(token) && !(skip_special_tokens && is_special(token))) state.push(state_->name_of(token), out);
  }
  state.finish(out);
  return out;
}

SLM_INLINE int Tokenizer::vocab() const { return state_->vocab(); }
SLM_INLINE bool Tokenizer::is_token(Token token) const { return state_->is_token(token); }
SLM_INLINE bool Tokenizer::is_special(Token token) const { return state_->special.contains(token); }
SLM_INLINE bool Tokenizer::is_control(Token token) const { return state_->is_control(token); }
SLM_INLINE std::string Tokenizer::piece(Token token) const { return std::string{state_->name_of(token)}; }

SLM_INLINE std::string Tokenizer::bytes(Token token) const { return decode_state().bytes_of(state_->name_of(token)); }

SLM_INLINE std::vector<std::string> Tokenizer::tokens() const {
  std::vector<std::string> all(static_cast<std::size_t>(vocab()));
  for (std::size_t id = 0; id < all.size(); ++id) all[id] = state_->name_of(static_cast<Token>(id));
  return all;
}

SLM_INLINE std::optional<Token> Tokenizer::token(std::string_view content) const {
  if (const auto added = state_->parts.added_names.find(content)) return added;
  return state_->parts.vocabulary.find(content);
}

SLM_INLINE DecodeState Tokenizer::decode_state() const { return DecodeState(state_->parts.decoder); }

}}
