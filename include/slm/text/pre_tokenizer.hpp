// PreTokenizer: cuts a normalized text into the words that the model encodes one by one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "slm/text/byte_level.hpp"
#include "slm/text/normalizer.hpp"
#include "slm/text/splitter.hpp"

namespace slm { inline namespace v0_1 {

class PreTokenizer {
 public:
  struct Gpt2Split {};
  struct Llama3Split {
    std::size_t most_digits;
  };
  struct Digits {
    bool individual;
  };
  struct PrefixSpace {};  // unless there is one
  struct ByteLevel {};    // bytes to characters of the byte-level alphabet
  struct Metaspace {
    enum class Prepend { always, first, never };
    std::string replacement;  // one character
    Prepend prepend;
    bool split;
  };
  using Step = std::variant<Gpt2Split, Llama3Split, Digits, PrefixSpace, ByteLevel, Metaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  const std::vector<Step>& steps() const { return steps_; }

  /// Calls sink(word) for each word of a valid text; `at_start`: the text begins where the user's text began.
  template <class Sink>
  void operator()(std::string_view text, bool at_start, Sink&& sink) const {
    std::string buffer;
    apply(steps_, text, at_start, buffer, sink);
  }

 private:
  /// Runs the first step on the text, and the rest on every piece of it. `buffer` serves ByteLevel, which runs for
  /// every word but only once in a pipeline.
  template <class Sink>
  static void apply(std::span<const Step> steps, std::string_view text, bool at_start, std::string& buffer,
                    Sink& sink) {
    if (text.empty()) return;
    if (steps.empty()) return sink(text);
    const auto rest = [&, remaining = steps.subspan(1)](std::string_view piece) {
      apply(remaining, piece, at_start, buffer, sink);
      at_start = false;
    };
    const Step& step = steps[0];
    if (std::holds_alternative<Gpt2Split>(step)) {
      split_gpt2(text, rest);
    } else if (const auto* split = std::get_if<Llama3Split>(&step)) {
      split_llama3(text, split->most_digits, rest);
    } else if (const auto* digits = std::get_if<Digits>(&step)) {
      split_digits(text, digits->individual, rest);
    } else if (std::holds_alternative<PrefixSpace>(step)) {
      if (text[0] == ' ') return rest(text);
      std::string prefixed{' '};
      rest(prefixed += text);
    } else if (std::holds_alternative<ByteLevel>(step)) {
      buffer.clear();
      byte_level::append_characters(buffer, text);
      rest(buffer);
    } else {
      metaspace(std::get<Metaspace>(step), text, at_start, rest);
    }
  }

  template <class Rest>
  static void metaspace(const Metaspace& step, std::string_view text, bool at_start, Rest& rest) {
    std::string replaced = replace_all(text, " ", step.replacement);
    const bool wanted =
        step.prepend == Metaspace::Prepend::always || (step.prepend == Metaspace::Prepend::first && at_start);
    if (wanted && !replaced.starts_with(step.replacement)) replaced.insert(0, step.replacement);
    if (!step.split) return rest(replaced);
    std::string_view left = replaced;  // a word starts at every replacement
    while (!left.empty()) {
      const std::size_t cut = left.find(step.replacement, 1);
      rest(left.substr(0, cut));
      left.remove_prefix(cut == left.npos ? left.size() : cut);
    }
  }

  std::vector<Step> steps_;
};

}}
