// Reads Hugging Face's tokenizer.json (BPE pipelines) and the added tokens of tokenizer_config.json.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/json_node.hpp"
#include "slm/text/pipeline_json.hpp"
#include "slm/text/tokenizer_parts.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

inline void read_vocabulary(TokenizerParts& parts, const JsonNode& vocab) {
  if (!vocab.value().is_object()) vocab.wrong("an object of token to id");
  const std::size_t count = vocab.value().size();
  if (count == 0)
    fail("tokenizer.empty-vocabulary", vocab.file(), text(vocab.described(), " holds no token"), download_again);
  parts.vocabulary = Vocabulary(count);
  for (const auto& [content, id] : vocab.value().items()) {
    const JsonNode node(id, vocab.file(), vocab.place());
    if (!id.is_number_integer()) {
      fail("tokenizer.wrong-type", vocab.file(),
           text("the id of ", shown(content), " is ", id.type_name(), ", expected an integer"), download_again);
    }
    add_token(parts.vocabulary, content, checked_id(node.integer(), count, vocab.file(), shown(content)), vocab.file());
  }
}

/// Each merge is "a b" or ["a", "b"].
inline MergeTable read_merges(const Vocabulary& vocabulary, const JsonNode& merges) {
  if (!merges.value().is_array()) merges.wrong("an array");
  MergeReader reader(vocabulary, merges.value().size(), merges.file(), merges.place());
  for (const auto& merge : merges.value()) {
    if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space != line.npos && line.find(' ', space + 1) == line.npos) {
        reader.add(line.substr(0, space), line.substr(space + 1));
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      reader.add(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      continue;
    }
    reader.bad("\"a b\" or [\"a\", \"b\"]");
  }
  return reader.take();
}

inline AddedToken read_added_token(const JsonNode& node, std::int64_t id, std::size_t count) {
  AddedToken token;
  token.content = node.at("content").string();
  token.id = checked_id(id, count, node.file(), text("the added token ", shown(token.content)));
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

inline void read_model(TokenizerParts& parts, const JsonNode& model) {
  if (const std::string type = model.word("type", "BPE"); type != "BPE")
    model.unsupported(text("model type ", shown(type)));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.word(affix).empty()) model.unsupported(text("a ", affix));
  }
  if (const auto dropout = model.find("dropout")) {
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0) dropout->unsupported("dropout");
  }
  read_vocabulary(parts, model.at("vocab"));
  Bpe::Options options;
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.byte_fallback = model.flag("byte_fallback", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  if (const auto unknown = model.find("unk_token")) {
    options.unknown = parts.vocabulary.find(unknown->string());
    if (!options.unknown) {
      fail("tokenizer.missing-unknown-token", model.file(),
           text("'", unknown->place(), "' is ", shown(unknown->string()), ", which is not in the vocabulary"),
           download_again);
    }
  }
  parts.bpe = Bpe(parts.vocabulary, read_merges(parts.vocabulary, model.at("merges")), options);
}

/// tokenizer.json as parts. `file` names it in errors.
inline TokenizerParts read_tokenizer_json(std::string_view source, const std::string& file) {
  const OwnedJson parsed = parse_json_object(source, file);
  const JsonNode root(parsed, file, "");
  TokenizerParts parts;
  read_model(parts, root.at("model"));
  if (const auto added = root.find("added_tokens")) {
    const std::size_t count = parts.vocabulary.size() + added->value().size();
    added->each([&](const JsonNode& node) {
      add_added_token(parts, read_added_token(node, node.at("id").integer(), count), file);
    });
  }
  if (const auto normalizer = root.find("normalizer")) read_normalizer(parts.normalizer, *normalizer);
  if (const auto pre_tokenizer = root.find("pre_tokenizer")) read_pre_tokenizer(parts.pre_tokenizer, *pre_tokenizer);
  if (const auto decoder = root.find("decoder")) {
    read_decoder(parts.decoder, *decoder);
  } else {
    parts.decoder.separator = " ";
  }
  if (const auto post_processor = root.find("post_processor")) read_post_processor(parts, *post_processor);
  return parts;
}

/// The fields of tokenizer_config.json that tokenizer.json lacks.
struct TokenizerConfig {
  std::vector<AddedToken> added;
  std::optional<bool> add_bos, add_eos, legacy;
};

/// `tokens`: tokens already known, which bounds the ids.
inline TokenizerConfig read_tokenizer_config(std::string_view source, const std::string& file, std::size_t tokens) {
  const OwnedJson parsed = parse_json_object(source, file);
  const JsonNode root(parsed, file, "");
  TokenizerConfig config;
  const auto optional_flag = [&root](const char* name) -> std::optional<bool> {
    const auto member = root.find(name);
    return member ? std::optional{member->boolean()} : std::nullopt;
  };
  config.add_bos = optional_flag("add_bos_token");
  config.add_eos = optional_flag("add_eos_token");
  config.legacy = optional_flag("legacy");
  if (const auto added = root.find("added_tokens_decoder")) {
    if (!added->value().is_object()) added->wrong("an object of id to token");
    for (const auto& [key, value] : added->value().items()) {
      std::int64_t id = -1;
      const char* end = key.data() + key.size();
      if (const auto read = std::from_chars(key.data(), end, id); read.ec != std::errc{} || read.ptr != end) id = -1;
      const JsonNode node(value, file, text(added->place(), ".", shown(key)));
      config.added.push_back(read_added_token(node, id, tokens + added->value().size()));
    }
  }
  return config;
}

/// Adds the tokens of tokenizer_config.json that the tokenizer does not have yet; what the tokenizer says counts first.
inline void merge_added_tokens(TokenizerParts& parts, const TokenizerConfig& config, const std::string& file) {
  for (const AddedToken& token : config.added) {
    if (parts.added_names.find(token.content) || parts.added_names.contains(token.id)) continue;
    add_added_token(parts, token, file);
  }
}

}}}
