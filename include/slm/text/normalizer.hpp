// Normalizer: what happens to a text before it is cut into words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/unicode.hpp"

namespace slm { inline namespace v0_1 {

/// The size that `bytes` of text may grow to: a file's chain of replacements must not fill the memory.
inline std::size_t growth_limit(std::size_t bytes) { return bytes * 64 + 65536; }

/// Every occurrence of `pattern`, left to right, becomes `content`. Throws Error when the text outgrows `limit` bytes.
inline std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content,
                               std::size_t limit = ~std::size_t{0}) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  std::size_t position = 0;
  for (std::size_t found; (found = text.find(pattern, position)) != text.npos; position = found + pattern.size()) {
    out.append(text, position, found - position);
    out += content;
    if (out.size() > limit) {
      throw Error("tokenizer.runaway-replacement",
                  slm::text("the tokenizer's Replace steps make a text more than ", limit, " bytes long"),
                  "Take tokenizer.json from the model's original repository");
    }
  }
  return out.append(text, position);
}

/// As SentencePiece removes extra white space: spaces that begin the text go, of several in a row one stays, and of
/// those that end it none; nor does an ending `mark`, which is what a space becomes.
inline std::string without_extra_spaces(std::string_view text, std::string_view mark) {
  std::string out;
  out.reserve(text.size());
  for (const char byte : text) {
    if (byte != ' ' || (!out.empty() && out.back() != ' ')) out += byte;
  }
  for (;;) {
    if (out.ends_with(' ')) {
      out.pop_back();
    } else if (out.ends_with(mark)) {
      out.resize(out.size() - mark.size());
    } else {
      return out;
    }
  }
}

class Normalizer {
 public:
  struct Nfc {};
  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    std::string pattern;  // not empty
    std::string content;
  };
  struct ExtraSpaces {  // see without_extra_spaces()
    std::string mark;   // not empty
  };
  using Step = std::variant<Nfc, Prepend, Replace, ExtraSpaces>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  const std::vector<Step>& steps() const { return steps_; }

  /// Runs the steps in order on valid UTF-8.
  std::string operator()(std::string_view text) const {
    std::string out{text};
    const std::size_t limit = growth_limit(text.size());
    for (const Step& step : steps_) {
      if (std::holds_alternative<Nfc>(step)) {
        if (!unicode::is_nfc_at_a_glance(out)) out = unicode::nfc(out);
      } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
        if (!out.empty()) out.insert(0, prepend->prefix);
      } else if (const auto* spaces = std::get_if<ExtraSpaces>(&step)) {
        out = without_extra_spaces(out, spaces->mark);
      } else {
        const auto& replace = std::get<Replace>(step);
        out = replace_all(out, replace.pattern, replace.content, limit);
      }
    }
    return out;
  }

 private:
  std::vector<Step> steps_;
};

}}
