// Reads the pipeline of tokenizer.json: normalizer, pre-tokenizer, decoder and post-processor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/json_node.hpp"
#include "slm/text/split/patterns.hpp"
#include "slm/text/split/pieces.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

inline constexpr int most_steps = 32;  // of one part of the pipeline; models have one to four

/// Calls read(step) for a step, or for each step of a "Sequence" (whose list is called `list`), however nested.
template <class Read>
void each_step(const JsonNode& node, const char* list, Read&& read, int depth, int& steps) {
  if (++steps > most_steps) node.unsupported(text("a pipeline of more than ", most_steps, " steps"));
  if (node.type() != "Sequence") return read(node);
  if (depth == 8) node.unsupported("a Sequence nested more than 8 deep");
  node.at(list).each([&](const JsonNode& step) { each_step(step, list, read, depth + 1, steps); });
}

template <class Read>
void each_step(const JsonNode& node, const char* list, Read&& read) {
  int steps = 0;
  each_step(node, list, read, 0, steps);
}

inline Normalizer::Replace read_replace(const JsonNode& step) {
  const JsonNode pattern = step.at("pattern");
  const auto string = pattern.find("String");
  if (!string) pattern.unsupported("a pattern that is not a plain String");
  if (string->string().empty()) string->unsupported("an empty pattern");
  return {string->string(), step.at("content").string()};
}

inline void read_normalizer(Normalizer& normalizer, const JsonNode& node) {
  each_step(node, "normalizers", [&](const JsonNode& step) {
    const std::string type = step.type();
    if (type == "NFC") {
      normalizer.add(Normalizer::Nfc{});
    } else if (type == "Prepend") {
      const std::string& prefix = step.at("prepend").string();
      if (prefix.size() > 64) step.unsupported("a prefix of more than 64 bytes");
      normalizer.add(Normalizer::Prepend{prefix});
    } else if (type == "Replace") {
      normalizer.add(read_replace(step));
    } else {
      step.unsupported(text("normalizer ", shown(type)));
    }
  });
}

inline split::Behavior read_behavior(const JsonNode& step, const char* otherwise = nullptr) {
  using enum split::Behavior;
  static constexpr std::pair<std::string_view, split::Behavior> behaviors[] = {
      {"Isolated", isolated},
      {"Removed", removed},
      {"Contiguous", contiguous},
      {"MergedWithPrevious", merged_with_previous},
      {"MergedWithNext", merged_with_next}};
  const std::string name = otherwise ? step.word("behavior", otherwise) : step.at("behavior").string();
  for (const auto& [known, behavior] : behaviors) {
    if (name == known) return behavior;
  }
  step.unsupported(text("the behavior ", shown(name)));
}

inline split::Splitter compiled(const JsonNode& node, std::string_view pattern, split::Behavior behavior,
                                bool invert = false) {
  split::Splitter splitter{split::Matcher::compile(pattern, text(node.file(), ": ", node.described())), behavior,
                           invert};
  // Where the matches are the whole text, to keep them and to remove the rest is to isolate them.
  if (behavior == split::Behavior::removed && invert && splitter.matcher->covers()) {
    splitter.behavior = split::Behavior::isolated;
    splitter.invert = false;
  }
  return splitter;
}

inline split::Splitter read_split(const JsonNode& step) {
  const JsonNode pattern = step.at("pattern");
  const split::Behavior behavior = read_behavior(step);
  const bool invert = step.flag("invert", false);
  if (const auto regex = pattern.find("Regex")) return compiled(*regex, regex->string(), behavior, invert);
  const JsonNode string = pattern.at("String");
  if (string.string().empty()) string.unsupported("an empty pattern");
  return compiled(string, split::escaped(string.string()), behavior, invert);
}

inline PreTokenizer::Metaspace read_metaspace(const JsonNode& step) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  PreTokenizer::Metaspace metaspace{step.word("replacement", "▁"), Prepend::always, step.flag("split", true)};
  if (utf8::count(metaspace.replacement) != 1) step.unsupported("a replacement that is not one character");
  const std::string scheme = step.word("prepend_scheme", step.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "first") {
    metaspace.prepend = Prepend::first;
  } else if (scheme == "never") {
    metaspace.prepend = Prepend::never;
  } else if (scheme != "always") {
    step.unsupported(text("prepend_scheme ", shown(scheme)));
  }
  return metaspace;
}

inline void read_pre_tokenizer(PreTokenizer& pre_tokenizer, const JsonNode& node) {
  using enum split::Behavior;
  bool is_bytes = false, has_metaspace = false;
  each_step(node, "pretokenizers", [&](const JsonNode& step) {
    const std::string type = step.type();
    if (type == "ByteLevel") {
      if (std::exchange(is_bytes, true)) step.unsupported("a second ByteLevel");
      if (step.flag("add_prefix_space", true)) pre_tokenizer.add(PreTokenizer::PrefixSpace{});
      if (step.flag("use_regex", true)) pre_tokenizer.add(compiled(step, split::pattern::gpt2, isolated));
      pre_tokenizer.add(PreTokenizer::ByteLevel{});
    } else if (type == "Split") {
      pre_tokenizer.add(read_split(step));
    } else if (type == "Digits") {
      const bool individual = step.flag("individual_digits", false);
      pre_tokenizer.add(compiled(step, split::pattern::number, individual ? isolated : contiguous));
    } else if (type == "Punctuation") {
      pre_tokenizer.add(compiled(step, split::pattern::punctuation, read_behavior(step, "Isolated")));
    } else if (type == "Whitespace") {
      pre_tokenizer.add(compiled(step, split::pattern::words, removed, true));
    } else if (type == "WhitespaceSplit") {
      pre_tokenizer.add(compiled(step, split::pattern::space, removed));
    } else if (type == "BertPreTokenizer") {
      pre_tokenizer.add(compiled(step, split::pattern::space, removed));
      pre_tokenizer.add(compiled(step, split::pattern::punctuation, isolated));
    } else if (type == "Metaspace") {
      if (std::exchange(has_metaspace, true)) step.unsupported("a second Metaspace");
      pre_tokenizer.add(read_metaspace(step));
    } else {
      step.unsupported(text("pre-tokenizer ", shown(type)));
    }
  });
}

/// The decoders that models use: ByteLevel or Metaspace alone, or Replace..., ByteFallback, Fuse, Strip in this order.
inline void read_decoder(TokenDecoder& decoder, const JsonNode& node) {
  enum Stage { nothing, replace, byte_fallback, fuse, strip, complete } stage = nothing;
  const auto enter = [&stage](const JsonNode& step, Stage next) {
    if (stage > next || (stage == next && next != replace) || (next == complete && stage != nothing)) {
      step.unsupported(text("decoder ", shown(step.type()), " at this place"));
    }
    stage = next;
  };
  each_step(node, "decoders", [&](const JsonNode& step) {
    const std::string type = step.type();
    if (type == "ByteLevel") {
      enter(step, complete);
      decoder.kind = TokenDecoder::Kind::byte_level;
    } else if (type == "Metaspace") {
      enter(step, complete);
      const PreTokenizer::Metaspace metaspace = read_metaspace(step);
      decoder.kind = TokenDecoder::Kind::metaspace;
      decoder.replacement = metaspace.replacement;
      decoder.drop_first_replacement = metaspace.prepend != PreTokenizer::Metaspace::Prepend::never;
    } else if (type == "Replace") {
      enter(step, replace);
      decoder.replaces.push_back(read_replace(step));
    } else if (type == "ByteFallback") {
      enter(step, byte_fallback);
      decoder.byte_fallback = true;
    } else if (type == "Fuse") {
      enter(step, fuse);
    } else if (type == "Strip") {
      if (stage != fuse) step.unsupported("a Strip that does not follow Fuse");
      enter(step, strip);
      const std::int64_t start = step.at("start").integer();
      if (start < 0 || step.at("stop").integer() != 0) step.unsupported("a Strip at the end of the text");
      decoder.strip_content = step.at("content").string();
      if (utf8::count(decoder.strip_content) != 1) step.unsupported("a Strip of anything but one character");
      decoder.strip_count = static_cast<std::size_t>(start);
    } else {
      step.unsupported(text("decoder ", shown(type)));
    }
  });
}

/// TemplateProcessing of a single text: special tokens before and after it.
inline void read_template(TokenizerParts& parts, const JsonNode& step) {
  std::vector<Token> before, after;
  bool after_text = false;
  const auto known = [&parts](std::int64_t id) {
    const auto token = static_cast<Token>(id);
    return id >= 0 && id < Vocabulary::id_limit &&
           (parts.vocabulary.contains(token) || parts.added_names.contains(token));
  };
  step.at("single").each([&](const JsonNode& element) {
    if (const auto sequence = element.find("Sequence")) {
      if (std::exchange(after_text, true)) element.unsupported("the text more than once");
      return;
    }
    const std::string name = element.at("SpecialToken").at("id").string();
    const auto token = step.at("special_tokens").find(name);
    if (!token) {
      fail("tokenizer.missing-special-token", step.file(),
           text(element.described(), " names ", shown(name), ", which '", step.place(),
                ".special_tokens' does not define"),
           download_again);
    }
    token->at("ids").each([&](const JsonNode& id) {
      if (!known(id.integer())) {
        fail("tokenizer.bad-id", step.file(), text(id.described(), " is ", id.integer(), ", which is no token"),
             download_again);
      }
      (after_text ? after : before).push_back(static_cast<Token>(id.integer()));
    });
  });
  if (!after_text) step.unsupported("a template without the text");
  before.insert(before.end(), parts.before.begin(), parts.before.end());
  parts.before = std::move(before);
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

inline void read_post_processor(TokenizerParts& parts, const JsonNode& node) {
  each_step(node, "processors", [&](const JsonNode& step) {
    const std::string type = step.type();
    if (type == "TemplateProcessing") {
      read_template(parts, step);
    } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
      step.unsupported(text("post-processor ", shown(type)));
    }
  });
}

}}}
