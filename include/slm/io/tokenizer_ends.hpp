// Reads the end tokens that the tokenizer's files of a Hugging Face folder declare.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/end_tokens.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/protobuf.hpp"

namespace slm { inline namespace v0_1 {

/// The text of a special token, bos_token or eos_token, in a tokenizer's file: empty for null, nothing if absent.
inline std::optional<std::string> stated_token(const Json& json, const std::string& file, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return std::nullopt;
  if (found->is_null()) return std::string{};
  const JsonFields fields(found->is_object() ? *found : json, file);
  return fields.string(found->is_object() ? "content" : name, "");
}

namespace detail {

/// Reads only the added tokens of a tokenizer.json and the id of one token. Added tokens are near the beginning of a
/// file of up to ten megabytes. For Json::sax_parse.
class AddedTokenReader {
 public:
  AddedTokenReader(const std::string& file, std::string_view wanted) : file_(file), wanted_(wanted) {}

  std::vector<ListedToken> tokens;
  std::optional<std::int64_t> wanted_id;

  bool null() { return true; }
  bool boolean(bool value) {
    if (in_token() && field_ == "special") token_.is_control = value;
    return true;
  }
  bool number_integer(Json::number_integer_t) { return true; }
  bool number_unsigned(Json::number_unsigned_t value) {
    const auto id = static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::uint64_t{1} << 62));
    if (in_token() && field_ == "id") token_.id = id;
    if (place_ == Place::vocabulary && depth_ == 3 && field_ == wanted_) wanted_id = id;
    return goes_on();
  }
  bool number_float(Json::number_float_t, const std::string&) { return true; }
  bool string(std::string& value) {
    if (in_token() && field_ == "content") token_.content = std::move(value);
    return true;
  }
  bool binary(Json::binary_t&) { return true; }

  bool key(std::string& name) {
    if (depth_ == 1) place_ = name == "added_tokens" ? Place::added : name == "model" ? Place::model : Place::other;
    if (depth_ == 2 && (place_ == Place::model || place_ == Place::vocabulary)) {
      place_ = name == "vocab" ? Place::vocabulary : Place::model;
    }
    if (depth_ == 3) std::swap(field_, name);
    return true;
  }

  bool start_object(std::size_t) {
    if (++depth_ == 3) token_ = {}, field_.clear();
    return true;
  }
  bool end_object() {
    if (in_token() && token_.id >= 0) {
      if (token_.content == wanted_) wanted_id = token_.id;
      tokens.push_back(std::move(token_));
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) { return ++depth_, true; }
  bool end_array() {
    if (--depth_ == 1 && place_ == Place::added) has_added_ = true;
    return goes_on();
  }

  [[noreturn]] bool parse_error(std::size_t, const std::string&, const Json::exception& fault) {
    throw Error("json.malformed", text("'", file_, "' is not valid JSON: ", excerpt(fault.what())),
                "Download or export the file again");
  }

 private:
  enum class Place { other, added, model, vocabulary };

  bool in_token() const { return place_ == Place::added && depth_ == 3; }
  bool goes_on() const { return !has_added_ || !(wanted_.empty() || wanted_id); }

  const std::string& file_;
  std::string_view wanted_;
  Place place_ = Place::other;
  int depth_ = 0;  // nesting depth of arrays and objects
  std::string field_;
  ListedToken token_;
  bool has_added_ = false;
};

/// The pieces of a SentencePiece model.
inline std::vector<ListedToken> read_pieces(std::string_view bytes, const std::string& file) {
  std::vector<ListedToken> pieces;
  ProtobufReader model(bytes, file);
  while (const auto field = model.next()) {
    if (field->number != 1) continue;
    ListedToken token{.id = static_cast<std::int64_t>(pieces.size()), .content = {}, .is_control = false};
    ProtobufReader piece(field->bytes, file);
    while (const auto part = piece.next()) {
      if (part->number == 1) token.content = part->bytes;
      if (part->number == 3) token.is_control = part->value == 3;
    }
    pieces.push_back(std::move(token));
  }
  return pieces;
}

/// The added tokens of tokenizer_config.json.
inline std::vector<ListedToken> read_added_tokens_decoder(const Json& json) {
  std::vector<ListedToken> tokens;
  const auto added = json.find("added_tokens_decoder");
  if (added == json.end() || !added->is_object()) return tokens;
  for (const auto& [key, value] : added->items()) {
    ListedToken token;
    const char* const end = key.data() + key.size();
    const auto read = std::from_chars(key.data(), end, token.id);
    if (read.ec != std::errc{} || read.ptr != end || !value.is_object()) continue;  // Tokenizer refuses such entries
    const auto content = value.find("content"), special = value.find("special");
    if (content != value.end() && content->is_string()) token.content = content->get<std::string>();
    token.is_control = special != value.end() && *special == true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace detail

/// The end tokens that a folder's tokenizer declares; empty without a tokenizer.
inline TokenizerEnds read_tokenizer_ends(const std::filesystem::path& folder) {
  TokenizerEnds ends;
  const auto json_path = folder / "tokenizer.json", model_path = folder / "tokenizer.model";
  const bool is_json = file_exists(json_path);
  if (!is_json && !file_exists(model_path)) return ends;
  std::optional<std::string> eos;
  std::vector<ListedToken> configured;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = folder / name;
    if (eos || !file_exists(path)) continue;
    const OwnedJson json = read_json_object(path);
    eos = stated_token(json, path.string(), "eos_token");
    ends.eos_file = name;
    for (ListedToken& token : detail::read_added_tokens_decoder(json)) configured.push_back(std::move(token));
  }
  const std::string wanted = eos.value_or("");
  const auto& path = is_json ? json_path : model_path;
  const std::string file = path.string();
  detail::AddedTokenReader reader(file, wanted);
  read_mapped(path, [&](std::string_view source) {
    if (is_json) {
      Json::sax_parse(source.begin(), source.end(), &reader);
    } else {
      reader.tokens = detail::read_pieces(source, file);
    }
    return true;
  });
  ends.tokens = std::move(reader.tokens);
  std::set<std::int64_t> ids;  // the tokenizer's own file takes precedence
  std::set<std::string> contents;
  for (const ListedToken& token : ends.tokens) ids.insert(token.id), contents.insert(token.content);
  for (ListedToken& token : configured) {
    if (!ids.contains(token.id) && !contents.contains(token.content)) ends.tokens.push_back(std::move(token));
  }
  if (wanted.empty()) return ends;
  ends.eos = reader.wanted_id;
  for (const ListedToken& token : ends.tokens) {
    if (!ends.eos && token.content == wanted) ends.eos = token.id;
  }
  return ends;
}

}}
