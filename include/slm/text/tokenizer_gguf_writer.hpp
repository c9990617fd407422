// A folder's tokenizer -> the metadata of a GGUF file, from which a reader makes the same ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "slm/core/os/path.hpp"
#include "slm/io/end_tokens.hpp"
#include "slm/io/gguf_writer.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/text/sentencepiece_model.hpp"
#include "slm/text/tokenizer_gguf.hpp"
#include "slm/text/tokenizer_json.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

/// The first ids, as many as GGUF has keys for.
inline void write_end_ids(GgufWriter& out, std::span<const Token> ends) {
  constexpr const char* names[] = {"eos", "eot", "eom"};
  std::vector<Token> written;
  for (const Token end : ends) {
    if (written.size() == std::size(names)) return;
    if (std::find(written.begin(), written.end(), end) != written.end()) continue;
    out.number(text("tokenizer.ggml.", names[written.size()], "_token_id"), static_cast<std::uint32_t>(end));
    written.push_back(end);
  }
}

class GgufTokenizerWriter {
 public:
  /// rows: of the embedding table, as many tokens as the file must have. architecture: as GGUF names it.
  GgufTokenizerWriter(GgufWriter& out, const std::filesystem::path& file, std::size_t rows,
                      std::string_view architecture)
      : out_(out),
        path_(file.string()),
        architecture_(architecture),
        tokens_(rows),
        types_(rows, SentencePiece::unused),
        scores_(rows, unreachable_score) {
    for (std::size_t id = 0; id < rows; ++id) tokens_[id] = text("[PAD", id, "]");
  }

  /// ends: ids that end a text.
  void write(std::span<const Token> ends) {
    const MappedFile mapped(path_of(path_));
    const std::string_view source = mapped.text();
    TokenizerConfig config;
    const auto config_path = path_of(path_).parent_path() / "tokenizer_config.json";
    if (file_exists(config_path)) {
      config = read_mapped(config_path, [&](std::string_view text) {
        return read_tokenizer_config(text, config_path.string(), tokens_.size());
      });
    }
    const bool is_json = path_.ends_with(".json");
    TokenizerParts parts = is_json ? read_tokenizer_json(source, path_) : read_tokenizer_model(source, path_, config);
    merge_added_tokens(parts, config, config_path.string());
    const bool bytes = parts.decoder.kind == TokenDecoder::Kind::byte_level;
    out_.string("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    if (is_json) {
      place_json(OwnedJson(parse_json_object(source, path_)), bytes);
    } else {
      place_pieces(read_sentencepiece(source, path_));
    }
    mapped.check_unchanged();
    for (const AddedToken& token : parts.added) place_added(token, parts);
    out_.string("tokenizer.ggml.pre", bytes ? pre_tokenizer_of(parts) : "default");
    out_.strings("tokenizer.ggml.tokens", tokens_);
    out_.numbers<std::int32_t>("tokenizer.ggml.token_type", types_);
    if (bytes) {
      out_.strings("tokenizer.ggml.merges", merges_);
    } else {
      out_.numbers<float>("tokenizer.ggml.scores", scores_);
      out_.boolean("tokenizer.ggml.add_space_prefix", adds_space(parts));
    }
    write_special(parts, ends);
  }

 private:
  static constexpr float unmerged = -1e6f;  // the score of the vocabulary's tokens that no merge leads to

  [[noreturn]] void refuse(const std::string& what) const {
    fail("tokenizer.not-for-gguf", path_, text(what, ", which GGUF cannot say"),
         "Use the model's folder as it is, or write AWQ");
  }

  void place(std::int64_t id, std::string_view token, SentencePiece::Type type, float score) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
      fail("tokenizer.bad-id", path_,
           text("the id of ", shown(token), " is ", id, ", the embedding table has ", tokens_.size(), " rows"),
           "Check that tokenizer and weights belong together");
    }
    const auto index = static_cast<std::size_t>(id);
    tokens_[index] = token;
    types_[index] = type;
    scores_[index] = score;
  }

  void place_json(const Json& json, bool bytes) {
    const Json& model = json.at("model");
    const bool falls_back = model.value("byte_fallback", false);
    if (!bytes && !falls_back) refuse("a vocabulary neither of bytes nor of SentencePiece");
    if (!bytes && model.value("ignore_merges", false)) refuse("words that stay whole beside SentencePiece's scores");
    if (bytes && model.contains("unk_token") && model.at("unk_token").is_string()) {
      refuse("an unknown token in a vocabulary of bytes");
    }
    ignores_merges_ = model.value("ignore_merges", false);
    // A score is that of the best merge that leads to a token: SentencePiece's readers merge by it.
    std::unordered_map<std::string, float> scores;
    for (const Json& merge : model.at("merges")) {
      std::string left, right;
      if (merge.is_string()) {
        const std::string& both = merge.get_ref<const std::string&>();
        left = both.substr(0, both.find(' '));
        right = both.substr(left.size() + 1);
      } else {
        left = merge[0];
        right = merge[1];
      }
      if (bytes && (left.find(' ') != left.npos || right.find(' ') != right.npos)) refuse("a merge with a space");
      scores.emplace(left + right, -static_cast<float>(scores.size()) - 1);
      merges_.push_back(left + " " + right);
    }
    const Json unknown = model.value("unk_token", Json());
    for (const auto& [token, id] : model.at("vocab").items()) {
      const bool is_byte = falls_back && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      const auto score = scores.find(token);
      place(id.get<std::int64_t>(), token,
            is_byte            ? SentencePiece::byte
            : unknown == token ? SentencePiece::unknown
                               : SentencePiece::normal,
            score != scores.end() ? score->second
            : is_byte             ? 0
                                  : unmerged);
    }
  }

  void place_pieces(const SentencePieceModel& model) {
    if (model.remove_extra_spaces || !model.escape_spaces) refuse("SentencePiece's own rules for spaces");
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencePiece& piece = model.pieces[id];
      place(static_cast<std::int64_t>(id), piece.text, static_cast<SentencePiece::Type>(piece.type), piece.score);
    }
  }

  void place_added(const AddedToken& token, const TokenizerParts& parts) {
    // No key says it: readers take it that Phi-3's own tokens swallow white space to their right, and that others do
    // not.
    const bool swallows = architecture_ == "phi3" && token.content != "<unk>" && token.content != "<s>" &&
                          token.content != "<|endoftext|>";
    if (token.single_word || token.lstrip || token.rstrip != swallows) {
      refuse(text("how the added token ", shown(token.content), " treats the spaces beside it"));
    }
    if (token.normalized && !is_found_alike(token.content, parts)) {
      fail(
          "tokenizer.not-for-gguf", path_,
          text("the added token ", shown(token.content), " is looked for after normalization, which GGUF cannot say"),
          "Set its \"normalized\" to false if the model was trained so, use the model's folder as it is, or write AWQ");
    }
    const auto id = static_cast<std::size_t>(token.id);
    const bool known = id < types_.size() && tokens_[id] == token.content && types_[id] != SentencePiece::unused;
    float score = unreachable_score;
    if (known && scores_[id] != unmerged) score = scores_[id] == unreachable_score ? score + 0.5f : scores_[id];
    place(token.id, token.content,
          known && types_[id] == SentencePiece::unknown ? SentencePiece::unknown
          : token.special                               ? SentencePiece::control
                                                        : SentencePiece::user_defined,
          score);
  }

  /// Returns true if an added token is found in the same places of the raw text, which readers of GGUF search, and of
  /// the normalized text, which is searched after the raw text.
  static bool is_found_alike(std::string_view content, const TokenizerParts& parts) {
    for (const AddedToken& other : parts.added) {
      if (!other.normalized && cuts_into(other.content, content)) return false;
    }
    return std::all_of(parts.normalizer.steps().begin(), parts.normalizer.steps().end(), [&](const auto& step) {
      if (std::holds_alternative<Normalizer::Nfc>(step)) return is_alone_in_nfc(content);
      const auto* replace = std::get_if<Normalizer::Replace>(&step);  // of one character by one, see adds_space()
      return replace && content.find(replace->pattern) == content.npos &&
             content.find(replace->content) == content.npos;
    });
  }

  /// Whether an occurrence of the first token may take a part of one of the second that begins before it, or is longer.
  static bool cuts_into(std::string_view first, std::string_view second) {
    if (first.empty()) return false;
    if (second.size() > first.size() && second.starts_with(first)) return true;
    for (std::size_t begin = 1; begin < second.size(); ++begin) {
      const std::string_view rest = second.substr(begin);
      if (rest.starts_with(first) || first.starts_with(rest)) return true;
    }
    return false;
  }

  /// Whether NFC changes nothing in the content, makes it of no other text, and joins it with nothing beside it. True
  /// for ASCII without the characters that NFC makes of others, and without one at its end that takes marks.
  static bool is_alone_in_nfc(std::string_view content) {
    const auto is_letter = [](char byte) { return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'); };
    const auto is_plain = [](char byte) {
      return static_cast<unsigned char>(byte) < 0x80 && byte != 'K' && byte != ';' && byte != '`';
    };
    if (content.empty()) return true;
    const char last = content.back();
    return std::all_of(content.begin(), content.end(), is_plain) && !is_letter(last) && (last < '<' || last > '>');
  }

  /// The name that stands for how this tokenizer normalizes and cuts words.
  std::string_view pre_tokenizer_of(const TokenizerParts& parts) const {
    using Normal = GgufPreTokenizer::Normal;
    const auto& steps = parts.normalizer.steps();
    const bool nfc = steps.size() == 1 && std::holds_alternative<Normalizer::Nfc>(steps[0]);
    if (!steps.empty() && !nfc) refuse("a normalizer other than NFC");
    const auto known = std::find_if(
        std::begin(gguf_pre_tokenizers), std::end(gguf_pre_tokenizers), [&](const GgufPreTokenizer& candidate) {
          return candidate.normal == (nfc ? Normal::nfc : Normal::none) &&
                 candidate.ignores_merges == ignores_merges_ && maps_bytes(candidate.splits) &&
                 are_splits(parts.pre_tokenizer.steps(), candidate.splits);
        });
    if (known == std::end(gguf_pre_tokenizers)) refuse("a way to cut words");
    return known->name;
  }

  /// Whether a space is put before each stretch of text.
  bool adds_space(const TokenizerParts& parts) const {
    // No space is left to Gemma's split at spaces.
    const GgufSplit at_spaces[] = {{"\\ ", split::Behavior::merged_with_previous}};
    if (!parts.pre_tokenizer.empty() && !are_splits(parts.pre_tokenizer.steps(), at_spaces)) {
      refuse("a space before the text's first word alone");
    }
    bool prepends = false, replaces = false;
    for (const Normalizer::Step& step : parts.normalizer.steps()) {
      const auto* prepend = std::get_if<Normalizer::Prepend>(&step);
      const auto* replace = std::get_if<Normalizer::Replace>(&step);
      if (prepend && prepend->prefix == "▁" && !replaces) {
        prepends = true;
      } else if (replace && replace->pattern == " " && replace->content == "▁") {
        replaces = true;
      } else {
        refuse("a normalizer other than SentencePiece's");
      }
    }
    if (!replaces) refuse("spaces that stay spaces");
    return prepends;
  }

  void write_special(const TokenizerParts& parts, std::span<const Token> ends) {
    if (parts.before.size() > 1 || parts.after.size() > 1) refuse("several tokens before or behind a text");
    const auto id = [this](const char* name, Token token) {
      out_.number(text("tokenizer.ggml.", name, "_token_id"), static_cast<std::uint32_t>(token));
    };
    out_.boolean("tokenizer.ggml.add_bos_token", !parts.before.empty());
    if (!parts.before.empty()) id("bos", parts.before.front());
    out_.boolean("tokenizer.ggml.add_eos_token", !parts.after.empty());
    // The first end of a text, then those that a reader does not know by their text, then the others.
    const auto is_known = [this](Token end) {
      const auto at = static_cast<std::size_t>(end);
      return at < types_.size() && types_[at] == SentencePiece::control && ends_texts(tokens_[at]);
    };
    std::vector<Token> named = parts.after;
    if (named.empty() && !ends.empty()) named.push_back(ends.front());
    std::copy_if(ends.begin(), ends.end(), std::back_inserter(named), std::not_fn(is_known));
    named.insert(named.end(), ends.begin(), ends.end());
    write_end_ids(out_, named);
    const auto unknown = std::find(types_.begin(), types_.end(), SentencePiece::unknown);
    if (unknown != types_.end()) id("unknown", static_cast<Token>(unknown - types_.begin()));
  }

  GgufWriter& out_;
  std::string path_;
  std::string_view architecture_;
  std::vector<std::string> tokens_;  // by id, as everything here
  std::vector<std::int32_t> types_;
  std::vector<float> scores_;
  std::vector<std::string> merges_;
  bool ignores_merges_ = false;
};

/// Adds the tokenizer of a model folder, or the ids that end a text alone where it has none. Throws Error
/// ("tokenizer.…").
inline void write_tokenizer(GgufWriter& out, const std::filesystem::path& folder, std::size_t rows,
                            std::string_view architecture, std::span<const Token> ends) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (!file_exists(folder / name)) continue;
    return GgufTokenizerWriter(out, folder / name, rows, architecture).write(ends);
  }
  write_end_ids(out, ends);
}

}}}
