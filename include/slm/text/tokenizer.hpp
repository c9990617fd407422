// Tokenizer: text to token ids and back, exactly as the model's own file says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/text/decoder.hpp"
#include "slm/text/sentencepiece_model.hpp"
#include "slm/text/tokenizer_gguf.hpp"
#include "slm/text/tokenizer_json.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm {

/// A stretch of a text that is put together from several. What is written in a literal one stands for itself: it never
/// becomes a control token, whatever it spells.
struct TextPart {
  std::string_view text;
  bool literal = false;
};

/// Cheap to copy: copies share one immutable state. All functions are const and may be called from several threads.
class Tokenizer {
 public:
  /// Reads a model folder (tokenizer.json, or tokenizer.model where only that exists; with the added tokens of
  /// tokenizer_config.json), one such file, or GGUF. Throws Error ("tokenizer.…", "gguf.…", "io.unreadable").
  static Tokenizer from(const std::filesystem::path& folder_or_file) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (const auto file = gguf_of(folder_or_file)) return parse(GgufFile(*file).fields());
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
    const std::string_view source = view_of(file);
    const bool is_json = path.extension() == ".json";
    TokenizerParts parts;
    if (is_json) parts = tokenizer_file::read_tokenizer_json(source, path.string());
    tokenizer_file::TokenizerConfig config;
    const fs::path config_path = path.parent_path() / "tokenizer_config.json";
    const bool has_config = path.stem() == "tokenizer" && file_exists(config_path);
    if (has_config) {
      const MappedFile config_file(config_path);
      const std::size_t most = is_json ? parts.vocabulary.size() : source.size();
      config = tokenizer_file::read_tokenizer_config(view_of(config_file), config_path.string(), most);
    }
    if (!is_json) parts = tokenizer_file::read_tokenizer_model(source, path.string(), config);
    tokenizer_file::merge_added_tokens(parts, config, config_path.string());
    return Tokenizer(std::move(parts));
  }

  /// Reads the content of a tokenizer.json; `name` stands for the file in errors.
  static Tokenizer parse(std::string_view json, const std::string& name = "tokenizer.json") {
    return Tokenizer(tokenizer_file::read_tokenizer_json(json, name));
  }

  /// Reads the content of a tokenizer.model.
  static Tokenizer parse_model(std::string_view bytes, const std::string& name = "tokenizer.model") {
    return Tokenizer(tokenizer_file::read_tokenizer_model(bytes, name, {}));
  }

  /// Reads the metadata of a GGUF file.
  static Tokenizer parse(const GgufFields& fields) { return Tokenizer(tokenizer_file::read_tokenizer_gguf(fields)); }

  /// Token ids of a text; with add_special_tokens those that the model wants around it (such as <s>), too. Bytes that
  /// are not UTF-8 are encoded as U+FFFD, one for each maximal subpart, as Python and Rust would hand them over.
  std::vector<Token> encode(std::string_view utf8, bool add_special_tokens = true) const {
    std::string repaired;
    if (!utf8::is_valid(utf8)) {
      utf8::append_lossy(repaired, utf8);
      utf8 = repaired;
    }
    return encode_whole(utf8, nullptr, add_special_tokens);
  }

  /// Token ids of the parts' concatenation, as encode() gives them where no literal part spells a control token.
  std::vector<Token> encode(std::span<const TextPart> parts, bool add_special_tokens) const {
    std::string whole;
    Literals literals;
    for (const TextPart& part : parts) {
      const std::size_t begin = whole.size();
      utf8::append_lossy(whole, part.text);
      if (part.literal && whole.size() > begin) literals.push_back({begin, whole.size()});
    }
    return encode_whole(whole, &literals, add_special_tokens);
  }

  /// Text of token ids; ids that are no token contribute nothing. Always valid UTF-8. What tokens add to a prompt's
  /// text may be more than their own text, by a space: see TextStream.
  std::string decode(std::span<const Token> tokens, bool skip_special_tokens = true) const {
    std::string out;
    DecodeState state(state_->parts.decoder);
    for (const Token token : tokens) {
      if (is_token(token) && !(skip_special_tokens && is_special(token))) state.push(name_of(token), out);
    }
    state.finish(out);
    return out;
  }

  /// Highest id + 1. The model's logits may be wider.
  int vocab() const { return std::max(state_->parts.vocabulary.id_end(), state_->parts.added_names.id_end()); }

  bool is_token(Token token) const {
    return state_->parts.vocabulary.contains(token) || state_->parts.added_names.contains(token);
  }

  /// True for tokens that decode() leaves out with skip_special_tokens.
  bool is_special(Token token) const { return state_->special.contains(token); }

  /// True for tokens that steer the model and stand for no text of their own: special ones, and those that are looked
  /// for in the raw text and are more than white space (such as Qwen's <tool_call>).
  bool is_control(Token token) const { return state_->control.contains(token); }

  /// The token's own text (such as "▁the" or "Ġthe"); empty when the id is no token.
  std::string piece(Token token) const { return std::string{name_of(token)}; }

  /// The pieces of all ids from 0 to vocab() - 1.
  std::vector<std::string> tokens() const {
    std::vector<std::string> all(static_cast<std::size_t>(vocab()));
    for (std::size_t id = 0; id < all.size(); ++id) all[id] = name_of(static_cast<Token>(id));
    return all;
  }

  /// The id of a token's own text.
  std::optional<Token> token(std::string_view content) const {
    if (const auto added = state_->parts.added_names.find(content)) return added;
    return state_->parts.vocabulary.find(content);
  }

  /// Starts decoding token by token: see DecodeState. The state refers to this tokenizer's shared state.
  DecodeState decode_state() const { return DecodeState(state_->parts.decoder); }

 private:
  struct State {
    TokenizerParts parts;
    AddedTokens raw;         // searched for in the user's text
    AddedTokens normalized;  // searched for in the normalized text
    AddedTokens markers;     // `raw` and every special token: searched for in a text of parts
    Vocabulary special;
    Vocabulary control;
  };
  struct Range {
    std::size_t begin, end;
  };
  using Literals = std::vector<Range>;  // places of the literal parts, in order

  explicit Tokenizer(TokenizerParts parts) {
    auto state = std::make_shared<State>();
    state->parts = std::move(parts);
    std::vector<AddedToken> raw, normalized, markers;
    for (AddedToken token : state->parts.added) {
      if (token.special) state->special.add(token.content, token.id);
      if (token.special || (!token.normalized && !is_blank(token.content))) state->control.add(token.content, token.id);
      if (token.special || !token.normalized) markers.push_back(token);
      if (token.normalized) token.content = state->parts.normalizer(token.content);
      (token.normalized ? normalized : raw).push_back(std::move(token));
    }
    state->raw = AddedTokens(std::move(raw));
    state->normalized = AddedTokens(std::move(normalized));
    state->markers = AddedTokens(std::move(markers));
    state_ = std::move(state);
  }

  static std::string_view view_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  static bool is_blank(std::string_view content) {
    for (std::size_t position = 0; position < content.size();) {
      if (!unicode::is_space(utf8::next(content, position))) return false;
    }
    return true;
  }

  std::string_view name_of(Token token) const {
    const auto& added = state_->parts.added_names;
    return added.contains(token) ? added.text(token) : state_->parts.vocabulary.text(token);
  }

  std::vector<Token> encode_whole(std::string_view whole, const Literals* literals, bool add_special_tokens) const {
    std::vector<Token> out;
    out.reserve(whole.size() / 3 + 8);
    if (add_special_tokens) out = state_->parts.before;
    encode_text(whole, literals, out);
    if (add_special_tokens) out.insert(out.end(), state_->parts.after.begin(), state_->parts.after.end());
    return out;
  }

  void encode_text(std::string_view whole, const Literals* literals, std::vector<Token>& out) const {
    const TokenizerParts& parts = state_->parts;
    Bpe::Scratch scratch;
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
        parts.pre_tokenizer(part, at_start, word);
      };
      // In a text of parts the markers were found before: what normalization makes of literal text stays text.
      const auto no_control = [&](Token token, std::size_t, std::size_t) {
        return literals == nullptr || !is_control(token);
      };
      state_->normalized.split(normal, normal_piece, put, no_control);
    };
    if (literals == nullptr) return state_->raw.split(whole, raw_piece, put);
    const auto outside = [&](Token token, std::size_t begin, std::size_t end) {
      if (!is_control(token)) return true;
      const auto ends_before = [begin](const Range& range) { return range.end <= begin; };
      const auto next = std::partition_point(literals->begin(), literals->end(), ends_before);
      return next == literals->end() || next->begin >= end;
    };
    state_->markers.split(whole, raw_piece, put, outside);
  }

  bool spells_control(std::string_view piece, std::span<const Token> tokens) const {
    return std::any_of(tokens.begin(), tokens.end(), [&](Token token) {
      return is_control(token) && piece.find(name_of(token)) != piece.npos;  // <unk> stands for what it does not spell
    });
  }

  std::shared_ptr<const State> state_;
};

}  // namespace slm
