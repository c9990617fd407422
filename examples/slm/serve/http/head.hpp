// Validates request heads: accepts a strict, unambiguous subset of RFC 9112.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "http/limits.hpp"

namespace serve {

/// Why a request with this head is rejected before its handler. The connection closes afterwards, because the start of
/// the next request is unknown.
struct BadHead {
  int status = 0;
  std::string_view message;
};

/// Whether a byte is allowed in names of methods and fields.
bool is_token_byte(char byte);

/// Progress of scanning a head.
struct HeadScan {
  std::size_t length = 0;  // length of the complete head including its empty line; 0 while incomplete
  std::optional<BadHead> refusal;
};

/// Searches the end of the head at the beginning of these bytes. The first `seen` bytes were already scanned. Refuses
/// lines without CRLF, control bytes and excessive lengths.
HeadScan scan_head(std::string_view bytes, std::size_t seen, const HttpLimits& limits);

/// The fault of a complete head that scan_head accepted, if any.
std::optional<BadHead> check_head(std::string_view head, const HttpLimits& limits);

}  // namespace serve
