// SchemaReferences: finds the targets of $ref inside of one schema text, by $id, $anchor and JSON pointer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/grammar/json_text.hpp"
#include "slm/grammar/schema_paths.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class SchemaReferences {
 public:
  struct Target {
    const JsonText* schema;
    std::string path;
  };

  explicit SchemaReferences(JsonText& root) { visit(root, "", 0, true); }

  /// The target of the $ref of a schema at `path`.
  Target find(const JsonText& schema, const std::string& target, const std::string& path) const {
    const std::size_t mark = std::min(target.find('#'), target.size());
    const std::string fragment = mark < target.size() ? unescaped(target.substr(mark + 1)) : "";
    const std::string uri = resolve(bases_[schema.resource], target.substr(0, mark));
    const auto resource = places_.find(uri);
    if (resource == places_.end()) {
      fail_schema(path, text("the reference ", quote(target), " is not supported: its target is outside of the schema"),
                  "grammar.unsupported");
    }
    if (!fragment.empty() && fragment[0] != '/') {
      const auto anchor = places_.find(uri + "#" + fragment);
      if (anchor == places_.end()) fail_schema(path, text("the reference ", quote(target), " has no target"));
      return anchor->second;
    }
    Target found = resource->second;
    for (std::size_t begin = 0; begin < fragment.size();) {
      const std::size_t end = std::min(fragment.find('/', begin + 1), fragment.size());
      const std::string name = plain(fragment.substr(begin + 1, end - begin - 1));
      found.schema = step(*found.schema, name);
      if (found.schema == nullptr) fail_schema(path, text("the reference ", quote(target), " has no target"));
      found.path = child_path(found.path, name);
      begin = end;
    }
    return found;
  }

 private:
  static const JsonText* step(const JsonText& value, const std::string& name) {
    if (!value.is(JsonText::Type::array)) return value.find(name);
    const bool number = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    const std::size_t index = number ? std::stoul(name) : value.items.size();
    return index < value.items.size() ? &value.items[index] : nullptr;
  }

  /// Notes the identifiers of a value and of those in it.
  void visit(JsonText& value, const std::string& path, std::uint32_t base, bool root) {
    if (value.is_object()) {
      const JsonText* id = value.find("$id");
      std::string anchor;
      if (id != nullptr && id->is(JsonText::Type::string) && id->text.starts_with('#')) {
        anchor = id->text.substr(1);  // draft 7
        id = nullptr;
      }
      const bool has_id = id != nullptr && id->is(JsonText::Type::string);
      if (has_id || root) {
        std::string uri = has_id ? resolve(root ? "" : bases_[base], id->text) : "";
        uri.erase(std::min(uri.find('#'), uri.size()));
        base = static_cast<std::uint32_t>(bases_.size());
        places_.try_emplace(uri, Target{&value, path});
        bases_.push_back(std::move(uri));
      }
      const JsonText* name = value.find("$anchor");
      if (name != nullptr && name->is(JsonText::Type::string)) anchor = name->text;
      if (value.find("$dynamicAnchor") != nullptr) fail_keyword(path, "$dynamicAnchor");
      if (!anchor.empty()) places_.try_emplace(bases_[base] + "#" + anchor, Target{&value, path});
    } else if (root) {
      bases_.emplace_back();
      places_.try_emplace("", Target{&value, path});
    }
    value.resource = base;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      JsonText& item = value.items[i];
      const bool object = value.is_object();
      if (object && (value.names[i] == "enum" || value.names[i] == "const")) continue;
      if (!item.is_object() && !item.is(JsonText::Type::array)) continue;
      visit(item, child_path(path, object ? value.names[i] : std::to_string(i)), base, false);
    }
  }

  /// A reference relative to a base, by RFC 3986.
  static std::string resolve(const std::string& base, const std::string& reference) {
    if (reference.empty()) return base;
    const std::size_t colon = reference.find(':');
    if (colon != reference.npos && reference.find('/') >= colon) return reference;
    const std::size_t scheme = base.find("://");
    if (scheme == base.npos) return reference;
    const std::size_t path = std::min(base.find('/', scheme + 3), base.size());
    if (reference.starts_with("//")) return base.substr(0, scheme + 1) + reference;
    if (reference[0] == '/') return base.substr(0, path) + reference;
    const std::size_t last = base.rfind('/');
    std::string folder = last < path || last == base.npos ? base.substr(0, path) + "/" : base.substr(0, last + 1);
    std::string_view rest = reference;
    for (;;) {
      if (rest.starts_with("./")) {
        rest.remove_prefix(2);
      } else if (rest.starts_with("../")) {
        rest.remove_prefix(3);
        const std::size_t above = folder.size() > path + 1 ? folder.rfind('/', folder.size() - 2) : path;
        folder.resize(above + 1);
      } else {
        return folder + std::string(rest);
      }
    }
  }

  static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    const char lower = static_cast<char>(digit | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  }

  /// Without percent escapes.
  static std::string unescaped(const std::string& target) {
    std::string made;
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool escape =
          target[i] == '%' && i + 2 < target.size() && hex_digit(target[i + 1]) >= 0 && hex_digit(target[i + 2]) >= 0;
      made += escape ? static_cast<char>(hex_digit(target[i + 1]) * 16 + hex_digit(target[i + 2])) : target[i];
      if (escape) i += 2;
    }
    return made;
  }

  /// Without the escapes of JSON pointers.
  static std::string plain(const std::string& name) {
    std::string made;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool escape = name[i] == '~' && i + 1 < name.size() && (name[i + 1] == '0' || name[i + 1] == '1');
      made += !escape ? name[i] : name[++i] == '0' ? '~' : '/';
    }
    return made;
  }

  std::vector<std::string> bases_;        // by resource
  std::map<std::string, Target> places_;  // by URI, with or without an anchor
};

}}}
