// A tokenizer.json or a SentencePiece model as metadata of llama.cpp's converter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/text/sentencepiece_model.hpp"
#include "support/gguf_builder.hpp"

namespace slm::testing {

struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;  // SentencePiece only
  std::vector<std::string> merges;

  void place(std::size_t id, const std::string& token, std::int32_t type, float score = 0) {
    for (std::size_t gap = tokens.size(); gap <= id; ++gap) {
      tokens.push_back("[PAD" + std::to_string(gap) + "]");
      types.push_back(5);
      scores.push_back(-1000);
    }
    tokens[id] = token;
    types[id] = type;
    scores[id] = score;
  }

  /// The contents of added_tokens in a tokenizer.json, or of added_tokens.json.
  void place_added(std::size_t id, const std::string& token, bool special) {
    const bool looks_special = token.starts_with("<|") && token.ends_with("|>");
    place(id, token, special || looks_special ? 3 : 4, -1000);
  }

  GgufBuilder file(const std::string& model, const std::string& pre, const std::string& architecture = "llama") const {
    GgufBuilder file;
    file.string("general.architecture", architecture).string("tokenizer.ggml.model", model);
    if (!pre.empty()) file.string("tokenizer.ggml.pre", pre);
    file.strings("tokenizer.ggml.tokens", tokens).numbers("tokenizer.ggml.token_type", gguf_i32, types);
    if (model == "llama") file.numbers("tokenizer.ggml.scores", gguf_f32, scores);
    if (model != "llama") file.strings("tokenizer.ggml.merges", merges);
    return file;
  }
};

/// The tokens of a tokenizer.json. A score is that of the best merge with this result.
inline GgufVocabulary gguf_vocabulary(const nlohmann::json& tokenizer) {
  GgufVocabulary out;
  const nlohmann::json& model = tokenizer.at("model");
  std::map<std::string, float> scores;
  for (const nlohmann::json& merge : model.at("merges")) {
    std::string joined =
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    out.merges.push_back(joined);
    joined.erase(joined.find(' '), 1);
    scores.emplace(joined, -static_cast<float>(scores.size()) - 1);
  }
  for (const auto& [token, id] : model.at("vocab").items()) {
    const bool is_byte = model.value("byte_fallback", false) && token.starts_with("<0x") && token.size() == 6;
    const auto score = scores.find(token);
    const float unmerged = is_byte ? 0 : -1e6f;
    out.place(id.get<std::size_t>(), token, is_byte ? 6 : 1, score == scores.end() ? unmerged : score->second);
  }
  for (const nlohmann::json& added : tokenizer.at("added_tokens")) {
    const std::string content = added.at("content");
    const bool is_unknown = model.contains("unk_token") && model.at("unk_token") == content;
    out.place_added(added.at("id"), content, added.at("special"));
    if (is_unknown) out.types[added.at("id").get<std::size_t>()] = 2;
  }
  return out;
}

/// The pieces of a tokenizer.model.
inline GgufVocabulary gguf_vocabulary(const tokenizer_file::SentencePieceModel& model) {
  GgufVocabulary out;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    out.place(id, std::string{piece.text}, static_cast<std::int32_t>(piece.type), piece.score);
  }
  return out;
}

/// A tokenizer.json of Phi-3 whose own tokens all strip white space to their right, as in its GGUF files.
inline nlohmann::json with_swallowing_tokens(nlohmann::json tokenizer) {
  for (auto& token : tokenizer.at("added_tokens")) {
    const std::string content = token.at("content");
    token["rstrip"] = content != "<unk>" && content != "<s>" && content != "<|endoftext|>";
  }
  return tokenizer;
}

}  // namespace slm::testing
