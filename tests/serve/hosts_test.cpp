// Hosts and origins of the server.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "http/addresses.hpp"
#include "http/cors.hpp"
#include "slm/core/error.hpp"

using serve::addresses_of;
using serve::HttpHeaders;
using serve::is_loopback;

TEST_CASE("localhost has the addresses of both families, a bracketed one only its own") {
  using Addresses = std::vector<std::string>;
  for (const auto* host : {"localhost", "LocalHost", "localhost."}) {
    CHECK(addresses_of(host) == Addresses{"127.0.0.1", "::1"});
  }
  CHECK(addresses_of("127.0.0.2") == Addresses{"127.0.0.2"});
  for (const auto* host : {"::1", "[::1]", "0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]"}) {
    CHECK(addresses_of(host) == Addresses{"::1"});
  }
  CHECK(addresses_of("[::]") == Addresses{"::"});
  CHECK(addresses_of("127.0.0.1,::1") == Addresses{"127.0.0.1", "::1"});
  CHECK(addresses_of("127.0.0.2,localhost,[::1]") == Addresses{"127.0.0.2", "127.0.0.1", "::1"});
  for (const auto* host : {"[", "]", "[]", "[::1", "::1]", "[localhost]]", "no such host", "1.2.3.4.5",
                           ":::", "127.0.0.1,", ",", ",::1", "127.0.0.1,,::1"}) {
    CAPTURE(host);
    try {
      addresses_of(host);
      FAIL("an address was found");
    } catch (const slm::Error& error) {
      CHECK(error.id() == "serve.bad-host");
    }
  }
}

TEST_CASE("A host is local if all its addresses are on the loopback") {
  for (const auto* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
                           "[::ffff:7f00:1]"}) {
    CAPTURE(host);
    CHECK(is_loopback(host));
  }
  for (const auto* host : {"0.0.0.0", "::", "[::]", "10.0.0.1", "::ffff:10.0.0.1", "::2", "128.0.0.1"}) {
    CAPTURE(host);
    CHECK_FALSE(is_loopback(host));
  }
}

TEST_CASE("An origin is a scheme and a host, in the form of browsers") {
  CHECK(serve::parse_origin("*") == "*");
  CHECK(serve::parse_origin("https://example.org") == "https://example.org");
  CHECK(serve::parse_origin("HTTP://Example.org:8080") == "http://example.org:8080");
  CHECK(serve::parse_origin("http://a:80") == "http://a");
  CHECK(serve::parse_origin("https://a:443") == "https://a");
  CHECK(serve::parse_origin("https://a:80") == "https://a:80");
  CHECK(serve::parse_origin("http://[::1]:3000") == "http://[::1]:3000");
  CHECK(serve::parse_origin("chrome-extension://abc") == "chrome-extension://abc");
  for (const auto* text : {"", "example.org", "http://", "://a", "http://a/", "http://a/b", "http://a b", "http://:80",
                           "http://a:", "http://*", "http://*.a", "null", "1a://b", "http://a\r\nX: y", "**"}) {
    CAPTURE(text);
    CHECK(serve::parse_origin(text).empty());
  }
}

TEST_CASE("Answers contain the allowed origin") {
  const serve::CrossOrigin page{"https://p", "", ""}, other{"https://q", "", ""}, none;
  CHECK(serve::CorsPolicy().headers(page).empty());
  const serve::CorsPolicy two({"https://p", "http://r:1"}), all({"*"});
  CHECK(two.headers(page).front() == HttpHeaders::value_type{"Access-Control-Allow-Origin", "https://p"});
  CHECK(two.headers(other) == HttpHeaders{{"Vary", "Origin"}});
  CHECK(two.headers(none) == HttpHeaders{{"Vary", "Origin"}});
  CHECK(two.headers(page).back() == HttpHeaders::value_type{"Vary", "Origin"});
  CHECK(all.headers(none).front() == HttpHeaders::value_type{"Access-Control-Allow-Origin", "*"});
  CHECK(two.allows("http://r:1"));
  CHECK_FALSE(two.allows("http://r"));
  CHECK_FALSE(two.allows("https://p.q"));
  CHECK_FALSE(all.allows(""));
}

TEST_CASE("Answers to pages with credentials name the origin, also where all are allowed") {
  const serve::CrossOrigin page{"https://p", "", ""}, other{"https://q", "", ""}, none;
  const HttpHeaders answer{{"Access-Control-Allow-Origin", "https://p"},
                           {"Access-Control-Allow-Credentials", "true"},
                           {"Access-Control-Expose-Headers", "X-Request-Id, X-Slm-Ignored-Fields, Retry-After"},
                           {"Vary", "Origin"}};
  const serve::CorsPolicy all({"*"}, true), one({"https://p"}, true);
  CHECK(all.headers(page) == answer);
  CHECK(one.headers(page) == answer);
  CHECK(one.headers(other) == HttpHeaders{{"Vary", "Origin"}});
  CHECK(all.headers(none) == HttpHeaders{{"Vary", "Origin"}});
  CHECK(serve::CorsPolicy({}, true).headers(page).empty());
}

TEST_CASE("The origins of this machine have any port") {
  const serve::CorsPolicy local({serve::parse_origin("localhost")});
  for (const auto* origin : {"http://localhost", "http://localhost:8080", "https://localhost:1",
                             "http://127.0.0.1:3000", "http://127.0.0.1", "http://[::1]", "http://[::1]:3000"}) {
    CHECK(local.headers({origin, "", ""}).front() == HttpHeaders::value_type{"Access-Control-Allow-Origin", origin});
  }
  for (const auto* origin : {"", "null", "localhost", "http://web.example", "http://notlocalhost",
                             "http://localhost.example", "http://127.0.0.1.example", "ftp://localhost"}) {
    CHECK_FALSE(local.allows(origin));
  }
}

TEST_CASE("The answer to a preflight contains the methods and the requested fields") {
  const serve::CorsPolicy all({"*"});
  CHECK(all.preflight_headers({"https://p", "POST", "authorization, content-type"}).back() ==
        HttpHeaders::value_type{"Access-Control-Allow-Headers", "authorization, content-type"});
  for (const auto* fields : {"", "a\"b", "a: b", "a;b"}) {
    for (const auto& [name, value] : all.preflight_headers({"https://p", "POST", fields})) {
      CHECK(name != "Access-Control-Allow-Headers");
    }
  }
}
