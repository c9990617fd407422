// Values as JSON, as Python's json.dumps() writes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/print.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

struct JsonForm {
  bool ascii = false, sorted = false;
  std::optional<Text> indent;  // of one level
  Text between{", ", Origin::given}, behind_key{": ", Origin::given};
};

class JsonPrinter {
 public:
  JsonPrinter(Heap& heap, const JsonForm& form, Text& out) : heap_(heap), form_(form), out_(out) {}

  void put(const Value& value) {
    heap_.spend(1);
    switch (value.kind()) {
      case Kind::none: return mark("null");
      case Kind::boolean: return mark(value.whole() != 0 ? "true" : "false");
      case Kind::integer: return mark(std::to_string(value.whole()));
      case Kind::real: heap_.spend(8); return mark(number(value.number()));
      case Kind::string: return quoted(value.text());
      case Kind::list:
      case Kind::tuple: return list(value.items());
      case Kind::dict: return dict(value.dict());
      default: fail(text("a value of type ", type_name(value), " cannot be written as JSON", reason(value)));
    }
  }

 private:
  static std::string reason(const Value& value) {
    return value.is_undefined() ? ": " + undefined_message(value) : std::string{};
  }

  static std::string number(double value) {
    const std::string shown = real_text(value);
    if (shown == "nan") return "NaN";
    if (shown == "inf") return "Infinity";
    return shown == "-inf" ? "-Infinity" : shown;
  }

  void mark(std::string_view text) { heap_.append(out_, text, Origin::given); }
  void put_text(const Text& text) { heap_.append(out_, text); }

  void line() {
    if (!form_.indent) return;
    mark("\n");
    for (int i = 0; i < level_; ++i) put_text(*form_.indent);
  }

  void list(const std::vector<Value>& items) {
    if (items.empty()) return mark("[]");
    mark("[");
    ++level_;
    bool first = true;
    for (const Value& item : items) {
      if (!std::exchange(first, false)) put_text(form_.between);
      line();
      put(item);
    }
    --level_;
    line();
    mark("]");
  }

  void dict(const DictObject& dict) {
    if (dict.items.empty()) return mark("{}");
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.items) members.push_back(&member);
    if (form_.sorted) {
      for (const auto* member : members) {
        if (!member->first.is_string()) fail("keys that are no strings cannot be sorted");
      }
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto* a, const auto* b) { return order(heap_, a->first, b->first) < 0; });
    }
    mark("{");
    ++level_;
    bool first = true;
    for (const auto* member : members) {
      if (!std::exchange(first, false)) put_text(form_.between);
      line();
      key(member->first);
      put_text(form_.behind_key);
      put(member->second);
    }
    --level_;
    line();
    mark("}");
  }

  void key(const Value& value) {
    if (value.is_string()) return quoted(value.text());
    if (!value.is_number() && !value.is_none()) {
      fail(text("keys of JSON are strings, found one of type ", type_name(value)));
    }
    mark("\"");
    put(value);
    mark("\"");
  }

  void quoted(const Text& text) {
    heap_.spend(text.size() / 4);
    mark("\"");
    put_text(changed(text, [this](std::string& out, char32_t code, std::size_t) { escape(out, code); }));
    mark("\"");
  }

  void escape(std::string& out, char32_t code) const {
    switch (code) {
      case '"': out += "\\\""; return;
      case '\\': out += "\\\\"; return;
      case '\n': out += "\\n"; return;
      case '\r': out += "\\r"; return;
      case '\t': out += "\\t"; return;
      case '\f': out += "\\f"; return;
      case '\b': out += "\\b"; return;
      default: break;
    }
    const auto unit = [&out](std::uint32_t value) {
      out += "\\u";
      append_hex(out, value, 4);
    };
    if (code >= 0x20 && (code < 0x7F || !form_.ascii)) {
      utf8::append(out, code);
    } else if (code >= 0x10000) {
      unit(0xD800 + ((code - 0x10000) >> 10));
      unit(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      unit(code);
    }
  }

  Heap& heap_;
  const JsonForm& form_;
  Text& out_;
  int level_ = 0;
};

}}}
