// Reads the tokenizer of a GGUF file's metadata: BPE with merges ("gpt2", "gemma4") and SentencePiece BPE ("llama").
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slm/io/gguf_fields.hpp"
#include "slm/text/gguf_pre_tokenizers.hpp"
#include "slm/text/sentencepiece.hpp"
#include "slm/text/tokenizer_parts.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

/// The score that converters give added tokens to which no merge leads.
inline constexpr float unreachable_score = -1000;

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufFields& fields) : fields_(fields), file_(fields.file()) {}

  TokenizerParts read() {
    const std::string_view model = fields_.string("tokenizer.ggml.model", "none");
    if (model == "none") {
      fail("tokenizer.not-found", file_, "the file has no tokenizer (tokenizer.ggml.model is none)",
           "Take a file that was converted with its vocabulary");
    }
    if (model != "gpt2" && model != "llama" && model != "gemma4") {
      fail("tokenizer.unsupported", file_,
           text("tokenizer.ggml.model ", shown(model), " is not supported, expected gpt2, gemma4 or llama"),
           "Encode the text elsewhere and pass token ids");
    }
    read_tokens();
    const bool begins = model == "llama" ? read_llama() : read_merged(model == "gpt2" ? "default" : model);
    add_around(begins);
    return std::move(parts_);
  }

 private:
  void read_tokens() {
    const auto texts = fields_.strings("tokenizer.ggml.tokens");
    if (texts.empty()) {
      fail("tokenizer.empty-vocabulary", file_, "tokenizer.ggml.tokens holds no token", download_again);
    }
    constexpr const char *type_key = "tokenizer.ggml.token_type", *score_key = "tokenizer.ggml.scores";
    std::vector<std::int64_t> types;
    if (fields_.has(type_key)) types = fields_.integers(type_key, texts.size());
    std::vector<double> scores;
    if (fields_.has(score_key)) scores = fields_.numbers(score_key, texts.size());
    tokens_.reserve(texts.size());
    for (std::size_t id = 0; id < texts.size(); ++id) {
      const std::int64_t type = types.empty() ? std::int64_t{SentencePiece::normal} : types[id];
      const double score = scores.empty() ? 0 : scores[id];
      SentencePiece token{texts[id], 0, static_cast<std::uint64_t>(type)};
      if (type < SentencePiece::normal || type > SentencePiece::byte) {
        fail("tokenizer.token-type", file_,
             text("token ", id, " (", shown(token.text), ") is of the unknown type ", type), download_again);
      }
      if (!utf8::is_valid(token.text)) {
        fail("tokenizer.not-utf8", file_, text("token ", id, " (", shown(token.text), ") is not UTF-8"),
             download_again);
      }
      if (!(std::abs(score) <= std::numeric_limits<float>::max())) {
        fail("tokenizer.bad-score", file_,
             text("token ", id, " (", shown(token.text), ") has a score that is no number"), download_again);
      }
      token.score = static_cast<float>(score);
      if (token.text.empty()) token.type = SentencePiece::unused;
      tokens_.push_back(token);
    }
  }

  static bool is_added(const SentencePiece& token) {
    return token.type == SentencePiece::unknown || token.type == SentencePiece::control ||
           token.type == SentencePiece::user_defined;
  }

  /// Ids are places in the list. in_vocabulary(index): whether text can become the token by merges; added tokens are
  /// looked for in the text, whether merges lead to them or not, and the others are unused.
  template <class InVocabulary>
  void place_tokens(InVocabulary&& in_vocabulary) {
    parts_.vocabulary = Vocabulary(tokens_.size());
    const auto each = [&](auto&& wanted, auto&& place) {
      for (std::size_t index = 0; index < tokens_.size(); ++index) {
        const SentencePiece& token = tokens_[index];
        if (!wanted(index)) continue;
        place(token, checked_id(static_cast<std::int64_t>(index), tokens_.size(), file_, shown(token.text)));
      }
    };
    each(in_vocabulary,
         [&](const SentencePiece& token, Token id) { add_token(parts_.vocabulary, token.text, id, file_); });
    const auto added_here = [&](std::size_t index) { return is_added(tokens_[index]); };
    each(added_here, [&](const SentencePiece& token, Token id) {
      if (const auto known = parts_.vocabulary.find(token.text); known && *known != id) {
        fail("tokenizer.duplicate-token", file_, text("token ", shown(token.text), " appears twice"), download_again);
      }
      AddedToken added;
      added.id = id;
      added.content = token.text;
      added.special = token.type != SentencePiece::user_defined;
      added.rstrip = swallows_space(token.text);
      add_added_token(parts_, std::move(added), file_);
    });
  }

  /// Phi-3's own tokens take white space to their right with them, which no key of the file says.
  bool swallows_space(std::string_view token) const {
    return fields_.string("general.architecture", "") == "phi3" && token != "<unk>" && token != "<s>" &&
           token != "<|endoftext|>";
  }

  /// Vocabularies with merges. `otherwise`: the pre-tokenizer where the file names none. Returns whether a text begins
  /// with the bos token unless the file says otherwise.
  bool read_merged(std::string_view otherwise) {
    const GgufPreTokenizer& pre = pre_tokenizer(otherwise);
    const std::string_view key = "tokenizer.ggml.merges";
    const auto merges = fields_.strings(key);
    const std::vector<bool> reached = reached_by(merges);
    place_tokens([&](std::size_t index) { return bool{reached[index]}; });
    MergeReader reader(parts_.vocabulary, merges.size(), file_, std::string{key});
    for (const std::string_view merge : merges) {
      const std::size_t space = space_in(merge);
      if (space == merge.npos) reader.bad("\"a b\"");
      reader.add(merge.substr(0, space), merge.substr(space + 1));
    }
    Bpe::Options options;
    options.ignore_merges = pre.ignores_merges;
    if (pre.normal == GgufPreTokenizer::Normal::marked) {
      add_byte_fallback(options);
      add_llama_pipeline(parts_, {LeadingSpace::never});
    }
    parts_.bpe = Bpe(parts_.vocabulary, reader.take(), options);
    if (pre.normal == GgufPreTokenizer::Normal::nfc) parts_.normalizer.add(Normalizer::Nfc{});
    add_splits(parts_.pre_tokenizer, pre.splits, file_);
    if (maps_bytes(pre.splits)) parts_.decoder.kind = TokenDecoder::Kind::byte_level;
    return pre.begins;
  }

  /// Characters that are no token become byte tokens, or else the unknown one.
  void add_byte_fallback(Bpe::Options& options) const {
    options.fuse_unknown = true;
    options.byte_fallback = true;
    for (std::size_t id = 0; id < tokens_.size() && !options.unknown; ++id) {
      if (tokens_[id].type == SentencePiece::unknown) options.unknown = static_cast<Token>(id);
    }
  }

  /// Between the two tokens of a merge; a space inside a token is written otherwise.
  static std::size_t space_in(std::string_view merge) { return merge.find(' ', 1); }

  /// Which tokens a word can become, by id. An added token is one of them where merges name it, or where it is a single
  /// character, which no merge has to name.
  std::vector<bool> reached_by(const std::vector<std::string_view>& merges) const {
    std::vector<bool> reached(tokens_.size());
    std::unordered_map<std::string_view, std::size_t> added;
    for (std::size_t index = 0; index < tokens_.size(); ++index) {
      const SentencePiece& token = tokens_[index];
      reached[index] = token.type == SentencePiece::normal || token.type == SentencePiece::byte ||
                       (is_added(token) && utf8::count(token.text) == 1);
      if (is_added(token)) added.emplace(token.text, index);
    }
    const auto reach = [&](std::string_view token) {
      if (const auto known = added.find(token); known != added.end()) reached[known->second] = true;
    };
    std::string joined;
    for (const std::string_view merge : merges) {
      const std::size_t space = space_in(merge);
      if (added.empty() || space == merge.npos) continue;
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      reach(left);
      reach(right);
      reach(joined.assign(left).append(right));
    }
    return reached;
  }

  const GgufPreTokenizer& pre_tokenizer(std::string_view otherwise) const {
    const std::string_view name = fields_.string("tokenizer.ggml.pre", otherwise);
    if (const auto* known = find_gguf_pre_tokenizer(name)) return *known;
    std::string names;
    for (const auto& candidate : gguf_pre_tokenizers) names += text(names.empty() ? "" : ", ", candidate.name);
    if (name == "default") {
      fail("tokenizer.no-pre", file_,
           "tokenizer.ggml.pre does not say how words are cut (files before May 2024 lack it)",
           text("Take a newer file, or write the name into this one, as gguf-new-metadata --pre-tokenizer NAME does; "
                "known are ",
                names));
    }
    fail("tokenizer.unknown-pre", file_, text("tokenizer.ggml.pre is ", shown(name), ", which slm does not know"),
         text("Use a model with one of ", names, ", or encode the text elsewhere and pass token ids"));
  }

  bool read_llama() {
    if (fields_.has("tokenizer.ggml.precompiled_charsmap")) {
      fail("tokenizer.unsupported", file_, "a character map in the normalizer is not supported",
           "Encode the text elsewhere and pass token ids");
    }
    fields_.at("tokenizer.ggml.scores");
    for (const SentencePiece& token : tokens_) {
      if (token.text.size() > longest_piece && !is_added(token)) {
        fail("tokenizer.long-token", file_,
             text("token ", shown(token.text), " has ", token.text.size(), " bytes, at most ", longest_piece,
                  " are expected"),
             download_again);
      }
    }
    place_tokens([&](std::size_t index) { return tokens_[index].type != SentencePiece::unused; });
    Bpe::Options options;
    add_byte_fallback(options);
    parts_.bpe = Bpe(parts_.vocabulary, merges_of(merged_pieces(), parts_.vocabulary), options);
    const bool prefix = fields_.boolean("tokenizer.ggml.add_space_prefix", true);
    add_llama_pipeline(parts_, {prefix ? LeadingSpace::every_piece : LeadingSpace::never});
    return true;
  }

  /// The tokens, those without text that no merge leads to: converters give tokens that were added to a SentencePiece
  /// model the score unreachable_score.
  std::vector<SentencePiece> merged_pieces() const {
    std::vector<SentencePiece> pieces = tokens_;
    std::optional<float> first;
    bool differ = false;
    for (SentencePiece& piece : pieces) {
      if (piece.type == SentencePiece::unused || (is_added(piece) && piece.score == unreachable_score)) piece.text = {};
      if (piece.type != SentencePiece::normal) continue;
      if (!first) first = piece.score;
      differ = differ || piece.score != *first;
    }
    if (!differ && pieces.size() > 1) {
      fail("tokenizer.bad-score", file_, "all tokens have the same score, which does not determine their merges",
           "Take a file that was converted with the model's tokenizer.model");
    }
    return pieces;
  }

  void add_around(bool begins) {
    const auto add = [this](std::vector<Token>& place, const char* key, const char* what) {
      const int count = static_cast<int>(tokens_.size());
      if (const auto found = fields_.token(key, count)) return place.push_back(*found);
      const GgufValue* value = fields_.find(key);
      fail("tokenizer.missing-special-token", file_,
           value ? text("a text has ", what, ", but ", key, " is ", value->described(), ", expected an id of 0..",
                        count - 1)
                 : text("a text has ", what, ", which no key names"),
           download_again);
    };
    if (fields_.boolean("tokenizer.ggml.add_bos_token", begins)) {
      add(parts_.before, "tokenizer.ggml.bos_token_id", "a bos token before it");
    }
    if (fields_.boolean("tokenizer.ggml.add_eos_token", false)) {
      add(parts_.after, "tokenizer.ggml.eos_token_id", "an eos token behind it");
    }
  }

  const GgufFields& fields_;
  const std::string& file_;
  std::vector<SentencePiece> tokens_;  // by id; in byte-level vocabularies without scores
  TokenizerParts parts_;
};

/// The tokenizer that the metadata describe, as parts.
inline TokenizerParts read_tokenizer_gguf(const GgufFields& fields) { return GgufTokenizerReader(fields).read(); }

}}}
