// Cross-origin requests (CORS): which origins' web pages may read answers.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/exchange.hpp"

namespace serve {

/// Normalises an origin to the form that browsers send: SCHEME://HOST[:PORT] in lower case without the default port;
/// "*": all origins; "localhost": those of this machine with any port. Returns an empty text for anything else.
std::string parse_origin(std::string_view text);

/// The CORS headers of a request.
struct CrossOrigin {
  std::string origin;  // the field Origin; empty: none
  std::string method;  // Access-Control-Request-Method
  std::string fields;  // Access-Control-Request-Headers

  /// Whether this is a browser's preflight request.
  bool is_preflight() const { return !origin.empty() && !method.empty(); }
};

/// The origins that may read answers; none: answers have no CORS headers.
class CorsPolicy {
 public:
  CorsPolicy() = default;
  /// origins: results of parse_origin(). credentials: whether pages may send cookies and other credentials of browsers.
  explicit CorsPolicy(std::vector<std::string> origins, bool credentials = false)
      : origins_(std::move(origins)), credentials_(credentials) {}

  bool allows(std::string_view origin) const;
  /// CORS headers for every answer to this request.
  HttpHeaders headers(const CrossOrigin& request) const;
  /// Additional headers for the answer to a preflight.
  HttpHeaders preflight_headers(const CrossOrigin& request) const;

 private:
  bool lists(std::string_view origin) const;
  bool allows_all() const { return lists("*"); }

  std::vector<std::string> origins_;
  bool credentials_ = false;
};

}  // namespace serve
