// Tokenizer: text to token ids and back, exactly as the model's own tokenizer.json says.
#pragma once

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
#include "slm/io/mapped_file.hpp"
#include "slm/text/decoder.hpp"
#include "slm/text/sentencepiece_model.hpp"
#include "slm/text/tokenizer_json.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm {

/// Cheap to copy: copies share one immutable state. All functions are const and may be called from several threads.
class Tokenizer {
 public:
  /// Reads a model folder (tokenizer.json, or tokenizer.model where only that exists; with the added tokens of
  /// tokenizer_config.json) or one such file. Throws Error ("tokenizer.…", "io.unreadable").
  static Tokenizer from(const std::filesystem::path& folder_or_file) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    fs::path path = folder_or_file;
    if (fs::is_directory(path, ignored)) {
      path = folder_or_file / "tokenizer.json";
      if (!fs::exists(path, ignored)) path = folder_or_file / "tokenizer.model";
      if (!fs::exists(path, ignored)) {
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
    const bool has_config = path.stem() == "tokenizer" && fs::exists(config_path, ignored);
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

  /// Token ids of a text; with add_special_tokens those that the model wants around it (such as <s>), too. Bytes that
  /// are not UTF-8 are encoded as U+FFFD, one for each maximal subpart, as Python and Rust would hand them over.
  std::vector<Token> encode(std::string_view utf8, bool add_special_tokens = true) const {
    std::string repaired;
    if (!utf8::is_valid(utf8)) {
      utf8::append_lossy(repaired, utf8);
      utf8 = repaired;
    }
    std::vector<Token> out;
    out.reserve(utf8.size() / 3 + 8);
    if (add_special_tokens) out = state_->parts.before;
    encode_text(utf8, out);
    if (add_special_tokens) out.insert(out.end(), state_->parts.after.begin(), state_->parts.after.end());
    return out;
  }

  /// Text of token ids; ids that are no token contribute nothing. Always valid UTF-8.
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

  /// The token's own text (such as "▁the" or "Ġthe"); empty when the id is no token.
  std::string piece(Token token) const { return std::string{name_of(token)}; }

  /// The pieces of all ids from 0 to vocab() - 1.
  std::vector<std::string> pieces() const {
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
    Vocabulary special;
  };

  explicit Tokenizer(TokenizerParts parts) {
    auto state = std::make_shared<State>();
    state->parts = std::move(parts);
    std::vector<AddedToken> raw, normalized;
    for (AddedToken token : state->parts.added) {
      if (token.special) state->special.add(token.content, token.id);
      if (token.normalized) token.content = state->parts.normalizer(token.content);
      (token.normalized ? normalized : raw).push_back(std::move(token));
    }
    state->raw = AddedTokens(std::move(raw));
    state->normalized = AddedTokens(std::move(normalized));
    state_ = std::move(state);
  }

  static std::string_view view_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  std::string_view name_of(Token token) const {
    const auto& added = state_->parts.added_names;
    return added.contains(token) ? added.text(token) : state_->parts.vocabulary.text(token);
  }

  void encode_text(std::string_view whole, std::vector<Token>& out) const {
    const TokenizerParts& parts = state_->parts;
    Bpe::Scratch scratch;
    const auto put = [&out](Token token) { out.push_back(token); };
    const auto word = [&](std::string_view piece) { parts.bpe.encode(parts.vocabulary, piece, out, scratch); };
    const auto raw_piece = [&](std::string_view piece) {
      std::string buffer;
      std::string_view normal = piece;
      if (!parts.normalizer.empty()) normal = buffer = parts.normalizer(piece);
      const auto normal_piece = [&](std::string_view part) {
        const bool at_start = piece.data() == whole.data() && part.data() == normal.data();
        parts.pre_tokenizer(part, at_start, word);
      };
      state_->normalized.split(normal, normal_piece, put);
    };
    state_->raw.split(whole, raw_piece, put);
  }

  std::shared_ptr<const State> state_;
};

}  // namespace slm
