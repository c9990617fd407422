// Whether two tokenizers do the same: a file that was made of another is read back and compared with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/rng.hpp"
#include "slm/core/types.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

/// Compares every token's text and kind, the ids of texts with each token alone, next to letters, digits,
/// white space, itself and other tokens, and the text of those ids.
class TokenizerComparison {
 public:
  TokenizerComparison(const Tokenizer& expected, const Tokenizer& found) : expected_(expected), found_(found) {}

  /// The first difference, as a part of a sentence; none if the tokenizers are equal.
  std::optional<std::string> difference() const {
    const Token end = std::max(expected_.vocab(), found_.vocab());
    std::vector<std::string> texts;
    for (Token id = 0; id < end; ++id) {
      if (expected_.is_token(id) != found_.is_token(id) || expected_.is_special(id) != found_.is_special(id) ||
          expected_.piece(id) != found_.piece(id)) {
        return text("token ", id, " is ", described(expected_, id), ", and then ", described(found_, id));
      }
      if (!expected_.is_token(id)) continue;
      if (auto differs = decoded({id, id})) return differs;
      for (std::string spelled : {expected_.bytes(id), expected_.piece(id)}) {
        if (spelled.empty() || !utf8::is_valid(spelled)) continue;
        for (const std::string& probe : {spelled, around(spelled)}) {
          if (auto differs = encoded(probe)) return differs;
        }
        texts.push_back(std::move(spelled));
      }
    }
    if (auto differs = encoded("")) return differs;
    for (std::uint32_t row = 0; row < rows && !texts.empty(); ++row) {
      std::string probe;
      for (std::uint32_t index = 0; index < 12; ++index) {
        probe += texts[philox({row, index, 0, 0}, 1)[0] % texts.size()];
      }
      if (auto differs = encoded(probe)) return differs;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t rows = 4096;  // texts of tokens that are drawn

  static std::string around(std::string_view spelled) {
    return text("a", spelled, "b ", spelled, " ", spelled, spelled, "1", spelled, "\n", spelled, "\u0338");
  }

  static std::string described(const Tokenizer& tokenizer, Token id) {
    if (!tokenizer.is_token(id)) return "none";
    return text(tokenizer.is_special(id) ? "the special " : "", quote(tokenizer.piece(id)));
  }

  std::optional<std::string> encoded(std::string_view probe) const {
    const std::vector<Token> ids = expected_.encode(probe);
    if (ids != found_.encode(probe)) return text("the text ", quote(probe), " becomes other tokens");
    return decoded(ids);
  }

  std::optional<std::string> decoded(const std::vector<Token>& ids) const {
    for (const bool skip : {false, true}) {
      const std::string decoded = expected_.decode(ids, skip);
      if (decoded != found_.decode(ids, skip)) return text("the tokens of ", quote(decoded), " become another text");
    }
    return std::nullopt;
  }

  const Tokenizer& expected_;
  const Tokenizer& found_;
};

}}}
