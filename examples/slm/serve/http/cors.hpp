// Cross-origin requests (CORS): which web pages of other origins may read the answers of this server.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/exchange.hpp"

namespace serve {

/// An origin in the form in which browsers send it, SCHEME://HOST[:PORT] in lower case and without the scheme's own
/// port; "*" stands for all origins. Empty where the text is neither.
std::string parse_origin(std::string_view text);

/// The headers of a request that name the origin of the page which sends it.
struct CrossOrigin {
  std::string origin;  // the field Origin; empty: none
  std::string method;  // Access-Control-Request-Method
  std::string fields;  // Access-Control-Request-Headers

  /// Whether a browser asks with it if the page may send its request.
  bool is_preflight() const { return !origin.empty() && !method.empty(); }
};

/// Which origins may read answers; none: answers say nothing about origins.
class CorsPolicy {
 public:
  CorsPolicy() = default;
  /// origins: as parse_origin() returns them.
  explicit CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  bool allows(std::string_view origin) const;
  /// What every answer to this request says about origins.
  HttpHeaders headers(const CrossOrigin& request) const;
  /// And what the answer to a preflight says besides.
  HttpHeaders preflight_headers(const CrossOrigin& request) const;

 private:
  bool allows_all() const;

  std::vector<std::string> origins_;
};

}  // namespace serve
