// JsonNode: one value of a tokenizer's JSON file together with its place, so that every fault names file and field.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/tokenizer_parts.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& file, std::string place)
      : value_(&value), file_(&file), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& file() const { return *file_; }
  const std::string& place() const { return place_; }

  /// A member that is present and not null.
  std::optional<JsonNode> find(const std::string& name) const {
    if (!value_->is_object()) wrong("an object");
    const auto member = value_->find(name);
    if (member == value_->end() || member->is_null()) return std::nullopt;
    return JsonNode(*member, *file_, place_.empty() ? name : text(place_, ".", name));
  }

  JsonNode at(const std::string& name) const {
    if (auto member = find(name)) return *member;
    fail("tokenizer.missing-field", *file_, text(described(), " has no field '", name, "'"), download_again);
  }

  /// Calls visit(element) for each element of an array.
  template <class Visit>
  void each(Visit&& visit) const {
    if (!value_->is_array()) wrong("an array");
    std::size_t index = 0;
    for (const auto& element : *value_) visit(JsonNode(element, *file_, text(place_, "[", index++, "]")));
  }

  const std::string& string() const {
    if (!value_->is_string()) wrong("a string");
    return value_->get_ref<const std::string&>();
  }

  bool boolean() const {
    if (!value_->is_boolean()) wrong("true or false");
    return value_->get<bool>();
  }

  std::int64_t integer() const {
    if (!value_->is_number_integer()) wrong("an integer");
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) return most;
    return value_->get<std::int64_t>();
  }

  bool flag(const char* name, bool otherwise) const {
    const auto member = find(name);
    return member ? member->boolean() : otherwise;
  }

  std::string word(const char* name, const char* otherwise = "") const {
    const auto member = find(name);
    return member ? member->string() : otherwise;
  }

  std::string type() const { return at("type").string(); }

  /// This part of a pipeline is none of those this library knows.
  [[noreturn]] void unsupported(std::string_view what) const {
    fail("tokenizer.unsupported", *file_, text(described(), ": ", what, " is not supported"),
         "Use a model whose tokenizer has the supported steps (docs/models.md, Tokenizers), or encode the text "
         "elsewhere "
         "and pass token ids");
  }

  [[noreturn]] void wrong(std::string_view expected) const {
    fail("tokenizer.wrong-type", *file_, text(described(), " is ", value_->type_name(), ", expected ", expected),
         download_again);
  }

  std::string described() const { return place_.empty() ? std::string{"the file"} : text("'", place_, "'"); }

 private:
  const nlohmann::json* value_;
  const std::string* file_;
  std::string place_;
};

}}}
