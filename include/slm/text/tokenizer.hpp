// Tokenizer: text to token ids and back, exactly as the model's own file says.
#pragma once

#include "slm/core/implementation_order.inc"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/text/decoder.hpp"

namespace slm { inline namespace v0_1 {

class GgufFields;
struct TokenizerParts;

/// One of several parts of a text. A literal part is encoded as plain text: it never
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
  static Tokenizer from(const std::filesystem::path& folder_or_file);

#if !defined(SLM_NO_FOLDERS)
  /// Reads the content of a tokenizer.json; `name` stands for the file in errors.
  static Tokenizer parse(std::string_view json, const std::string& name = "tokenizer.json");

  /// Reads the content of a tokenizer.model.
  static Tokenizer parse_model(std::string_view bytes, const std::string& name = "tokenizer.model");
#endif

#if !defined(SLM_NO_GGUF)
  /// Reads the metadata of a GGUF file.
  static Tokenizer parse(const GgufFields& fields);
#endif

  /// Token ids of a text; with add_special_tokens those that the model wants around it (such as its beginning), too.
  /// Bytes that are not UTF-8 are encoded as U+FFFD, one for each maximal subpart, as Python and Rust would hand them
  /// over.
  std::vector<Token> encode(std::string_view utf8, bool add_special_tokens = true) const;

  /// Token ids of the parts' concatenation, as encode() gives them where no literal part spells a control token.
  std::vector<Token> encode(std::span<const TextPart> parts, bool add_special_tokens) const;

  /// Text of token ids; ids that are no token contribute nothing. Always valid UTF-8. The text that tokens add to a
  /// prompt's text may begin with one more space: see TextStream.
  std::string decode(std::span<const Token> tokens, bool skip_special_tokens = true) const;

  /// Highest id + 1. The model's logits may be wider.
  int vocab() const;

  bool is_token(Token token) const;

  /// True for tokens that decode() leaves out with skip_special_tokens.
  bool is_special(Token token) const;

  /// True for tokens that control the model instead of text: special ones, and added tokens that are searched
  /// in the raw text and are more than white space (such as Qwen's marker of a tool call).
  bool is_control(Token token) const;

  /// The token's own text (such as "▁the" or "Ġthe"); empty when the id is no token.
  std::string piece(Token token) const;

  /// The bytes of the token inside a text; some may be part of a character only.
  std::string bytes(Token token) const;

  /// The pieces of all ids from 0 to vocab() - 1.
  std::vector<std::string> tokens() const;

  /// The id of a token's own text.
  std::optional<Token> token(std::string_view content) const;

  /// Starts decoding token by token: see DecodeState. The state refers to this tokenizer's shared state.
  DecodeState decode_state() const;

 private:
  struct State;

  explicit Tokenizer(TokenizerParts parts);

  std::shared_ptr<const State> state_;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_tokenizer_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/tokenizer_state.hpp"
#endif
