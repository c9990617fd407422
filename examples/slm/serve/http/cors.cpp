#include "http/cors.hpp"

#include <algorithm>

#include "http/ascii.hpp"
#include "http/head.hpp"
#include "http/target.hpp"

namespace serve {
namespace {

/// Whether all bytes are allowed in a list of field names.
bool is_list_of_names(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char byte) {
    return is_token_byte(byte) || byte == ',' || byte == ' ' || byte == '\t';
  });
}

/// Whether a page comes from this machine: http://localhost, http://127.0.0.1, http://[::1], with any port.
bool is_local(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
      const std::string_view rest = origin.substr(scheme.size());
      if (rest == host || (rest.starts_with(host) && rest[host.size()] == ':')) return true;
    }
  }
  return false;
}

}  // namespace

std::string parse_origin(std::string_view text) {
  if (text == "*" || text == "localhost") return std::string{text};
  std::string origin = lower(text);
  const std::size_t colon = origin.find("://");
  if (colon == origin.npos || colon == 0 || origin.front() < 'a' || origin.front() > 'z') return {};
  const std::string scheme = origin.substr(0, colon);
  const auto is_scheme_byte = [](char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.';
  };
  if (!std::all_of(scheme.begin(), scheme.end(), is_scheme_byte)) return {};
  const std::string authority = origin.substr(colon + 3);
  if (authority.empty() || authority.front() == ':' || authority.back() == ':' || !is_authority(authority)) return {};
  if (authority.find('*') != authority.npos) return {};  // it would match nothing
  for (const auto& [name, port] : {std::pair("http", ":80"), std::pair("https", ":443")}) {
    if (scheme == name && origin.ends_with(port)) origin.resize(origin.size() - std::string_view(port).size());
  }
  return origin;
}

bool CorsPolicy::lists(std::string_view origin) const {
  return std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool CorsPolicy::allows(std::string_view origin) const {
  if (origin.empty()) return false;
  if (allows_all()) return true;
  return origin != "localhost" && (lists(origin) || (lists("localhost") && is_local(origin)));
}

HttpHeaders CorsPolicy::headers(const CrossOrigin& request) const {
  if (origins_.empty()) return {};
  if (allows_all() && !credentials_) {
    return {{"Access-Control-Allow-Origin", "*"}, {"Access-Control-Expose-Headers", "*"}};
  }
  if (!allows(request.origin)) return {{"Vary", "Origin"}};
  if (credentials_) {  // browsers then take `*` for a name
    return {{"Access-Control-Allow-Origin", request.origin},
            {"Access-Control-Allow-Credentials", "true"},
            {"Access-Control-Expose-Headers", "X-Request-Id, X-Slm-Ignored-Fields, Retry-After"},
            {"Vary", "Origin"}};
  }
  return {{"Access-Control-Allow-Origin", request.origin}, {"Access-Control-Expose-Headers", "*"}, {"Vary", "Origin"}};
}

/// Lists the field names that the page requested, since `*` does not cover Authorization.
HttpHeaders CorsPolicy::preflight_headers(const CrossOrigin& request) const {
  HttpHeaders headers{{"Access-Control-Allow-Methods", "GET, HEAD, POST"}, {"Access-Control-Max-Age", "600"}};
  if (is_list_of_names(request.fields)) headers.emplace_back("Access-Control-Allow-Headers", request.fields);
  return headers;
}

}  // namespace serve
