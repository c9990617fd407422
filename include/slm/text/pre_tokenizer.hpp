// PreTokenizer: cuts a normalized text into the words that the model encodes one by one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "slm/text/byte_level.hpp"
#include "slm/text/normalizer.hpp"
#include "slm/text/split/pieces.hpp"

namespace slm { inline namespace v0_1 {

class PreTokenizer {
 public:
  struct PrefixSpace {  // unless there is one
    bool operator==(const PrefixSpace&) const = default;
  };
  struct ByteLevel {  // bytes to characters of the byte-level alphabet
    bool operator==(const ByteLevel&) const = default;
  };
  struct Metaspace {
    enum class Prepend { always, first, never };
    std::string replacement;  // one character
    Prepend prepend;
    bool split;
    bool operator==(const Metaspace&) const = default;
  };
  using Step = std::variant<split::Splitter, PrefixSpace, ByteLevel, Metaspace>;

  /// Memory of the steps that is kept from text to text.
  class Scratch {
    friend class PreTokenizer;
    struct OfStep {
      split::Matcher::Places places;
      std::string text;
    };
    std::vector<OfStep> steps;
  };

  template <class Added>
  void add(Added&& step) {
    steps_.emplace_back(std::forward<Added>(step));
  }
  bool empty() const { return steps_.empty(); }
  const std::vector<Step>& steps() const { return steps_; }
  bool operator==(const PreTokenizer&) const = default;

  /// Calls sink(word) for each word of a valid text; `at_start`: the text begins where the user's text begins.
  template <class Sink>
  void operator()(std::string_view text, bool at_start, Scratch& scratch, Sink&& sink) const {
    scratch.steps.resize(steps_.size());
    apply(0, text, at_start, scratch, sink);
  }

 private:
  /// Runs one step on the text, and those behind it on every piece of it.
  template <class Sink>
  void apply(std::size_t index, std::string_view text, bool at_start, Scratch& scratch, Sink& sink) const {
    if (text.empty()) return;
    if (index == steps_.size()) return sink(text);
    const auto rest = [&](std::string_view piece) {
      apply(index + 1, piece, at_start, scratch, sink);
      at_start = false;
    };
    auto& [places, buffer] = scratch.steps[index];
    const Step& step = steps_[index];
    if (const auto* splitter = std::get_if<split::Splitter>(&step)) {
      (*splitter)(text, places, [&](std::string_view piece) {
        apply(index + 1, piece, at_start && piece.data() == text.data(), scratch, sink);
      });
    } else if (std::holds_alternative<PrefixSpace>(step)) {
      if (text[0] == ' ') return rest(text);
      buffer = ' ';
      rest(buffer += text);
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
