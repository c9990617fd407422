// JSON pointers to the places of a schema, for references and errors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// Ends early where errors do not show more.
inline std::string child_path(const std::string& path, std::string_view name) {
  constexpr std::size_t most = 256;
  if (path.size() > most) return path;
  std::string whole = path + "/";
  for (const char byte : name) {
    if (whole.size() > most) break;
    if (byte == '~') {
      whole += "~0";
    } else if (byte == '/') {
      whole += "~1";
    } else {
      whole += byte;
    }
  }
  return whole;
}

[[noreturn]] inline void fail_schema(const std::string& path, std::string_view sentence,
                                     std::string_view id = "grammar.schema") {
  throw Error(id, text("json_schema", excerpt(path), ": ", sentence),
              "Correct the schema; docs/structured.md lists the keywords");
}

[[noreturn]] inline void fail_keyword(const std::string& path, std::string_view keyword) {
  fail_schema(child_path(path, keyword), text(quote(keyword), " is not supported"), "grammar.unsupported");
}

}}}
