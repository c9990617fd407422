// Which heads of requests are let in: a strict subset of RFC 9112, so that no two programs can read one differently.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "http/limits.hpp"

namespace serve {

/// Why a request is not answered by its handler. After it the connection closes: where the next one would begin is
/// not known.
struct Refusal {
  int status = 0;
  std::string_view message;
};

/// Whether names of methods and fields may have it.
bool is_token_byte(char byte);

/// How far a head has come.
struct HeadScan {
  std::size_t length = 0;  // of the whole head with its empty line; 0 while that has not come
  std::optional<Refusal> refusal;
};

/// Looks for the end of the head that these bytes begin with. The first `seen` of them were looked at before, and
/// neither ended nor refused it. Refuses lines that do not end in CRLF, control bytes and what is too long.
HeadScan scan_head(std::string_view bytes, std::size_t seen, const HttpLimits& limits);

/// What is wrong with a whole head that scan_head has let through, if anything.
std::optional<Refusal> check_head(std::string_view head, const HttpLimits& limits);

}  // namespace serve
