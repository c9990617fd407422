// Reads untrusted JSON files: every fault is an Error that names the file and the field.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm { inline namespace v0_1 {

using Json = nlohmann::json;

/// Limits for untrusted JSON. Model folders stay far below: ten levels, tens of megabytes.
inline constexpr int deepest_json = 64;
inline constexpr std::size_t largest_json = 100'000'000;  // bytes; the header limit of safetensors

namespace detail {

/// Removes nested values from the leaves up.
inline void clear_nested(Json& json) noexcept {
  if (auto* const array = json.get_ptr<Json::array_t*>()) {
    for (Json& element : *array) clear_nested(element);
    array->clear();
  } else if (auto* const object = json.get_ptr<Json::object_t*>()) {
    for (auto& [name, member] : *object) clear_nested(member);
    object->clear();
  }
}

}  // namespace detail

/// Owns a JSON value and destroys it without allocating. Json's destructor allocates for nested values and terminates
/// the program if that fails. Every JSON value that the library reads or creates is held by this class.
class OwnedJson : public Json {
 public:
  OwnedJson() = default;
  OwnedJson(Json&& value) noexcept : Json(std::move(value)) {}
  OwnedJson(const OwnedJson&) = delete;
  OwnedJson& operator=(const OwnedJson&) = delete;
  ~OwnedJson() { detail::clear_nested(*this); }

  Json take() { return std::move(static_cast<Json&>(*this)); }
};

/// Compares with a text without allocating. Json's own comparison allocates, and terminates the program if that fails.
inline bool is_text(const Json& value, std::string_view expected) noexcept {
  const auto* const found = value.get_ptr<const std::string*>();
  return found != nullptr && *found == expected;
}

/// Adds a new object as a member of an object.
inline Json& new_member(Json& object, const std::string& name) { return object[name] = Json::object(); }

/// Adds a list as a member of an object. The member is created first: see OwnedJson.
template <class List>
void set_list(Json& object, const std::string& name, const List& list) {
  Json& place = object[name];
  place = list;
}

namespace detail {

/// Builds a value for Json::sax_parse. Limits are checked during construction, since copying, comparing and printing
/// are recursive.
class JsonBuilder {
 public:
  JsonBuilder(const std::string& file, std::string_view advice) : file_(file), advice_(advice) {}

  Json take() { return whole_.take(); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& value) { return put(std::move(value)); }
  bool start_object(std::size_t) { return open(Json::value_t::object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Json::value_t::array); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto [member, is_new] = open_.back()->get_ptr<Json::object_t*>()->try_emplace(name);
    if (!is_new) {
      throw Error("json.duplicate-name", text("'", file_, "' has the name ", quote(name), " twice in one object"),
                  advice_);
    }
    member_ = &member->second;
    return true;
  }

  [[noreturn]] bool parse_error(std::size_t, const std::string&, const Json::exception& fault) {
    throw Error("json.malformed", text("'", file_, "' is not valid JSON: ", excerpt(fault.what())), advice_);
  }

 private:
  bool put(Json value) {
    place() = std::move(value);
    return true;
  }

  bool open(Json::value_t kind) {
    if (open_.size() >= std::size_t{deepest_json}) {
      throw Error("json.too-deep", text("'", file_, "' is nested more than ", deepest_json, " levels deep"), advice_);
    }
    Json& begun = place();
    begun = kind;
    open_.push_back(&begun);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// The location of the next value.
  Json& place() {
    if (open_.empty()) return whole_;
    return open_.back()->is_object() ? *member_ : open_.back()->get_ptr<Json::array_t*>()->emplace_back();
  }

  const std::string& file_;
  std::string_view advice_;
  OwnedJson whole_;
  std::vector<Json*> open_;  // open arrays and objects; only the last one grows
  Json* member_ = nullptr;   // value of the last name
};

}  // namespace detail

/// Parses all JSON input. Duplicate member names are an Error. advice: remedy in messages.
inline Json parse_json(std::string_view source, const std::string& file,
                       std::string_view advice = "Download or export the file again") {
  if (source.size() > largest_json) {
    throw Error("json.too-large", text("'", file, "' holds ", source.size(), " bytes of JSON, at most ", largest_json),
                advice);
  }
  detail::JsonBuilder builder(file, advice);
  Json::sax_parse(source.begin(), source.end(), &builder);
  return builder.take();
}

inline Json parse_json_object(std::string_view source, const std::string& file,
                              std::string_view advice = "Download or export the file again") {
  OwnedJson json = parse_json(source, file, advice);
  if (!json.is_object()) {
    throw Error("json.not-an-object", text("'", file, "' holds ", json.type_name(), ", expected an object"), advice);
  }
  return json.take();
}

/// A value for messages.
inline std::string quote_json(const Json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  return value.is_structured() ? value.type_name() : value.dump();
}

/// Serializes JSON. Bytes that are not UTF-8, as in file names, become U+FFFD.
template <class AnyJson>
std::string json_text(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

namespace detail {

/// Puts the numbers that Python writes beside those of JSON, Infinity, -Infinity and NaN, into quotes.
inline std::string with_quoted_numbers(std::string_view source) {
  std::string quoted;
  bool in_text = false;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool escapes = in_text && source[i] == '\\';
    std::string_view part = source.substr(i, escapes ? 2 : 1);
    if (part == "\"") in_text = !in_text;
    for (const std::string_view number : {"Infinity", "-Infinity", "NaN"}) {
      if (!in_text && source.substr(i).starts_with(number)) part = number;
    }
    i += part.size() - 1;
    if (part.size() > 2) {
      quoted += text('"', part, '"');
    } else {
      quoted += part;
    }
  }
  return quoted;
}

}  // namespace detail

/// A field with a number that JSON lacks (Infinity, -Infinity, NaN) has its name as a text.
inline Json read_json_object(const std::filesystem::path& path) {
  return read_mapped(path, [&](std::string_view text) {
    try {
      return parse_json_object(text, path.string());
    } catch (const Error& error) {
      if (error.id() != "json.malformed") throw;
      const std::string quoted = detail::with_quoted_numbers(text);
      if (quoted.size() == text.size()) throw;
      return parse_json_object(quoted, path.string());
    }
  });
}

/// Whether a value is an integer in 0..limit-1.
inline bool is_index(const Json& value, std::uint64_t limit) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() < limit;
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::uint64_t>() < limit;
}

/// Reads one object of a JSON file field by field. Refers to the object. advice: remedy for an invalid field.
class JsonFields {
 public:
  explicit JsonFields(const Json& object, std::string file,
                      std::string advice = "Copy the file from the model's original repository")
      : object_(object), file_(std::move(file)), advice_(std::move(advice)) {}
  JsonFields(Json&&, std::string, std::string = {}) = delete;

  /// Whether the field is present and not null.
  bool has(const char* name) const {
    const auto field = object_.find(name);
    return field != object_.end() && !field->is_null();
  }

  /// Whether the field is present, possibly null.
  bool states(const char* name) const { return object_.contains(name); }

  const Json& at(const char* name) const {
    if (!has(name)) {
      throw Error("json.missing-field", text("'", file_, "' has no field '", name, "'"), advice_);
    }
    return *object_.find(name);
  }

  int integer(const char* name, int smallest, int largest) const {
    const Json& field = at(name);
    if (!field.is_number_integer()) throw bad(name, "an integer", field);
    const auto in_range = [&](auto value) { return value >= smallest && value <= largest; };
    const bool sound = field.is_number_unsigned()
                           ? field.get<std::uint64_t>() <= std::uint64_t(std::numeric_limits<std::int64_t>::max()) &&
                                 in_range(field.get<std::int64_t>())
                           : in_range(field.get<std::int64_t>());
    if (!sound) throw bad(name, text("an integer of ", smallest, "..", largest).c_str(), field);
    return field.get<int>();
  }

  int integer(const char* name, int smallest, int largest, int otherwise) const {
    return has(name) ? integer(name, smallest, largest) : otherwise;
  }

  /// A finite number in [smallest, largest].
  float number(const char* name, double smallest, double largest) const {
    const Json& field = at(name);
    if (!field.is_number()) throw bad(name, "a number", field);
    const double value = field.get<double>();
    if (!(value >= smallest && value <= largest))
      throw bad(name, text("a number of ", smallest, "..", largest).c_str(), field);
    return static_cast<float>(value);
  }

  float number(const char* name, double smallest, double largest, float otherwise) const {
    return has(name) ? number(name, smallest, largest) : otherwise;
  }

  bool boolean(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!at(name).is_boolean()) throw bad(name, "true or false", at(name));
    return at(name).get<bool>();
  }

  std::string string(const char* name, const std::string& otherwise) const {
    if (!has(name)) return otherwise;
    if (!at(name).is_string()) throw bad(name, "a string", at(name));
    return at(name).get<std::string>();
  }

  JsonFields object(const char* name) const {
    if (!at(name).is_object()) throw bad(name, "an object", at(name));
    return JsonFields(at(name), file_, advice_);
  }

  const std::string& file() const { return file_; }

  Error bad(const char* name, const char* expected, const Json& found) const {
    return Error("json.bad-field",
                 text("'", file_, "': field ", quote(name), " is ", quote_json(found), ", expected ", expected),
                 advice_);
  }

 private:
  const Json& object_;
  std::string file_;
  std::string advice_;
};

}}
