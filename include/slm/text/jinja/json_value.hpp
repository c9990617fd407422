// JSON's text as a value. Unlike io/json.hpp it keeps the order of members, which templates show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/jinja/operators.hpp"
#include "slm/text/jinja/runtime.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// Builds a value, for Json::sax_parse.
class ValueBuilder {
 public:
  ValueBuilder(Heap& heap, const std::string& file, std::string_view advice)
      : heap_(heap), file_(file), advice_(advice) {}

  Value take() { return std::move(whole_); }

  bool null() { return put(Value::none()); }
  bool boolean(bool value) { return put(Value::boolean(value)); }
  bool number_integer(std::int64_t value) { return put(Value::integer(value)); }
  bool number_unsigned(std::uint64_t value) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return put(value > most ? Value::real(static_cast<double>(value))
                            : Value::integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string&) { return put(Value::real(value)); }
  bool string(std::string& value) { return put(heap_.string(value, Origin::given)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(false); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    const std::size_t before = level.members.size();
    level.members.set(heap_.string(name, Origin::given), Value::none());
    if (level.members.size() == before) {
      throw Error("json.duplicate-name", text("'", file_, "' has the name ", quote(name), " twice in one object"),
                  advice_);
    }
    return true;
  }

  [[noreturn]] bool parse_error(std::size_t, const std::string&, const Json::exception& fault) {
    throw Error("json.malformed", text("'", file_, "' is not valid JSON: ", excerpt(fault.what())), advice_);
  }

 private:
  struct Level {
    bool is_object;
    DictBuilder members;
    std::vector<Value> items;
  };

  bool put(Value value) {
    if (levels_.empty()) {
      whole_ = std::move(value);
    } else if (levels_.back().is_object) {
      levels_.back().members.set_last(std::move(value));
    } else {
      levels_.back().items.push_back(std::move(value));
    }
    return true;
  }

  bool open(bool is_object) {
    if (levels_.size() >= std::size_t{deepest_json}) {
      throw Error("json.too-deep", text("'", file_, "' is nested more than ", deepest_json, " levels deep"), advice_);
    }
    levels_.push_back({is_object, DictBuilder(heap_), {}});
    return true;
  }

  bool close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return put(level.is_object ? level.members.take() : heap_.list(std::move(level.items)));
  }

  Heap& heap_;
  const std::string& file_;
  std::string_view advice_;
  std::vector<Level> levels_;
  Value whole_;
};

/// All strings of it count as given. Throws Error ("json.…"). file: the source's name. advice: what to do about faults.
inline Value parse_value(Heap& heap, std::string_view source, const std::string& file,
                         std::string_view advice = "Correct the JSON") {
  if (source.size() > largest_json) {
    throw Error("json.too-large", text("'", file, "' holds ", source.size(), " bytes of JSON, at most ", largest_json),
                advice);
  }
  ValueBuilder builder(heap, file, advice);
  Json::sax_parse(source.begin(), source.end(), &builder);
  return builder.take();
}

inline Value parse_value(std::string_view source, const std::string& file,
                         std::string_view advice = "Correct the JSON") {
  Heap heap;
  return parse_value(heap, source, file, advice);
}

namespace filters {

inline Value from_json(Runtime& run, const Value& value, const Call& call) {
  Given("from_json", call, {});
  need(value);
  if (!value.is_string()) fail(text("'from_json' needs a string, got the type ", type_name(value)));
  run.heap.spend(value.bytes().size());
  try {
    return parse_value(run.heap, value.bytes(), "from_json");
  } catch (const Error& error) {
    fail(error.what());
  }
}

}  // namespace filters

}}}
