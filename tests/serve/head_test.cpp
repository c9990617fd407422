// The strict check of request headers.
#include "http/head.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "http/escapes.hpp"
#include "http/target.hpp"

using serve::HttpLimits;

namespace {

/// 0 if a request with these lines is accepted, else its status.
int status_of(const std::string& head, const HttpLimits& limits = {}) {
  const auto scan = serve::scan_head(head, 0, limits);
  if (scan.refusal) return scan.refusal->status;
  REQUIRE(scan.length == head.size());
  const auto refusal = serve::check_head(head, limits);
  return refusal ? refusal->status : 0;
}

int status_of_line(const std::string& request_line) { return status_of(request_line + "\r\nHost: a\r\n\r\n"); }

int status_of_fields(const std::string& fields) {
  return status_of("POST /v1 HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
}

}  // namespace

TEST_CASE("Headers of usual clients are accepted") {
  CHECK(status_of("GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n") == 0);
  CHECK(status_of("GET /a%20b?c=d&e HTTP/1.1\r\nhost: [::1]:80\r\n\r\n") == 0);
  CHECK(status_of("GET / HTTP/1.0\r\n\r\n") == 0);
  CHECK(status_of("POST /v1 HTTP/1.1\r\nHOST:a\r\nContent-Length: 12 \r\nX-Empty:\r\nX-Tab: a\tb\xc3\xa4\r\n\r\n") ==
        0);
  CHECK(status_of("OPTIONS /v1 HTTP/1.1\r\nHost:\r\nExpect: 100-Continue\r\ntransfer-encoding: Chunked\r\n\r\n") == 0);
}

TEST_CASE("A request line has a method, a path and a version, and one space between them") {
  for (const auto* line : {"GET /",
                           "GET",
                           "/ HTTP/1.1",
                           " GET / HTTP/1.1",
                           "GET  / HTTP/1.1",
                           "GET /  HTTP/1.1",
                           "GET / HTTP/1.1 ",
                           "GET /a b HTTP/1.1",
                           "GET\t/ HTTP/1.1",
                           "G(T / HTTP/1.1",
                           "GET * HTTP/1.1",
                           "OPTIONS ** HTTP/1.1",
                           "OPTIONS *?a HTTP/1.1",
                           "GET http:/// HTTP/1.1",
                           "GET http:///a HTTP/1.1",
                           "GET http://?a HTTP/1.1",
                           "GET http://:80/ HTTP/1.1",
                           "GET http:/a HTTP/1.1",
                           "GET http:a HTTP/1.1",
                           "GET ftp://a/ HTTP/1.1",
                           "GET http://user@a/ HTTP/1.1",
                           "GET http://a\\b/ HTTP/1.1",
                           "GET //a%zz HTTP/1.1",
                           "GET /% HTTP/1.1",
                           "GET /%4 HTTP/1.1",
                           "GET /a%4gb HTTP/1.1",
                           "GET http://a/%g0 HTTP/1.1",
                           "CONNECT a:80 HTTP/1.1",
                           "CONNECT /a HTTP/1.1",
                           "GET / HTTP/2.0",
                           "GET / HTTP/1.2",
                           "GET / http/1.1",
                           "GET / HTTP/1.1x",
                           "GET /\xc3\xa4 HTTP/1.1",
                           "GET a HTTP/1.1",
                           ""}) {
    CAPTURE(line);
    CHECK(status_of_line(line) == 400);
  }
}

TEST_CASE("A target is a path, a URI whose host is ignored, or the whole server") {
  const auto target = [](const char* method, const char* text) {
    const auto found = serve::split_target(method, text);
    return found ? std::string(found->path) + "|" + std::string(found->query) : "refused";
  };
  CHECK(target("GET", "/a%20b?c=%zz?d") == "/a%20b|c=%zz?d");
  CHECK(target("GET", "/") == "/|");
  CHECK(target("GET", "//a/b") == "//a/b|");
  CHECK(target("GET", "http://a/b?c") == "/b|c");
  CHECK(target("GET", "http://a") == "/|");
  CHECK(target("GET", "http://a?b") == "/|b");
  CHECK(target("GET", "http://a?b/c") == "/|b/c");
  CHECK(target("GET", "http://a/?") == "/|");
  CHECK(target("GET", "HTTP://[::1]:80/b") == "/b|");
  CHECK(target("POST", "hTTps://a.b:443//c") == "//c|");
  CHECK(target("OPTIONS", "*") == "*|");
  CHECK(target("OPTIONS", "http://a") == "*|");
  CHECK(target("OPTIONS", "http://a/") == "/|");
  CHECK(target("GET", "*") == "refused");
  CHECK(target("GET", "") == "refused");
  CHECK(target("GET", "a.b:80") == "refused");
  for (const auto* line : {"GET http://b/a?c HTTP/1.1", "GET HTTPS://b HTTP/1.0", "OPTIONS * HTTP/1.1"}) {
    CHECK(status_of_line(line) == 0);
  }
}

TEST_CASE("Escapes are decoded once") {
  CHECK(serve::unescaped("a%20b%2Fc%2f%C3%A8") == "a b/c/\xc3\xa8");
  CHECK(serve::unescaped("%2541+") == "%41+");
  CHECK(serve::unescaped("%00") == std::string(1, '\0'));
  for (const auto* bad : {"%", "a%", "%4", "%4g", "%g4", "%%41", "% 41"}) CHECK_FALSE(serve::unescaped(bad));
}

TEST_CASE("Every line of a header ends in CRLF and has no control byte") {
  for (const std::string head :
       {"GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\n", "\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX", "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\x7f\r\n\r\n", "\x16\x03\x01\x02"}) {
    CAPTURE(head);
    CHECK(status_of(head) == 400);
  }
  CHECK(status_of(std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29)) == 400);
}

TEST_CASE("A field is a word, a colon and a value in one line") {
  for (const auto* field : {"X-A : b", " X-A: b", "X-A", ": b", "X A: b", "X-A\t: b", "\xc3\xa4: b",
                            "X-A: b\r\n folded", "X-A: b\r\n\tfolded"}) {
    CAPTURE(field);
    CHECK(status_of_fields(std::string(field) + "\r\n") == 400);
  }
}

TEST_CASE("A request of HTTP/1.1 names its host exactly once") {
  CHECK(status_of("GET / HTTP/1.1\r\n\r\n") == 400);
  CHECK(status_of_fields("Host: a\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n") == 400);
}

TEST_CASE("A body has one unambiguous length") {
  for (const auto* fields :
       {"Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1\r\ncontent-length: 2\r\n",
        "Content-Length: 1, 1\r\n", "Content-Length: +1\r\n", "Content-Length: -1\r\n", "Content-Length: 0x1\r\n",
        "Content-Length: 1 1\r\n", "Content-Length:\r\n", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 1\r\n", "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n", "Transfer-Encoding: \"chunked\"\r\n"}) {
    CAPTURE(fields);
    CHECK(status_of_fields(fields) == 400);
  }
  CHECK(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") == 400);
  CHECK(status_of_fields("Content-Length: 9007199254740992\r\n") == 0);
  CHECK(status_of_fields("Content-Length: 9007199254740993\r\n") == 413);
  CHECK(status_of_fields("Content-Length: " + std::string(1000, '9') + "\r\n") == 413);
}

TEST_CASE("A request with a body by its method states its length") {
  for (const std::string method : {"POST", "PUT", "PATCH"}) {
    CAPTURE(method);
    for (const std::string version : {" /v1 HTTP/1.1", " /v1 HTTP/1.0"}) {
      CHECK(status_of_line(method + version) == 411);
      CHECK(status_of_line(method + version + "\r\nContent-Length: 0") == 0);
    }
    CHECK(status_of_line(method + " /v1 HTTP/1.1\r\nTransfer-Encoding: chunked") == 0);
  }
  for (const auto* line : {"DELETE / HTTP/1.1", "GET / HTTP/1.1", "OPTIONS / HTTP/1.1", "post / HTTP/1.1"}) {
    CAPTURE(line);
    CHECK(status_of_line(line) == 0);
  }
}

TEST_CASE("The only expectation is 100-continue, and single values occur once") {
  CHECK(status_of_fields("Expect: a miracle\r\n") == 417);
  CHECK(status_of_fields("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n") == 400);
  CHECK(status_of_fields("Origin: http://a\r\nOrigin: http://b\r\n") == 400);
  CHECK(status_of_fields("Content-Type: a/b\r\nContent-Type: c/d\r\n") == 400);
}

TEST_CASE("A header has limits of bytes, of its first line and of fields") {
  HttpLimits limits;
  limits.line_bytes = 32;
  limits.head_bytes = 128;
  limits.fields = 3;
  const auto head = [](std::size_t path, std::size_t value) {
    return "GET /" + std::string(path, 'a') + " HTTP/1.1\r\nHost: a\r\nX: " + std::string(value, 'b') + "\r\n\r\n";
  };
  CHECK(status_of(head(16, 0), limits) == 0);
  CHECK(status_of(head(17, 0), limits) == 414);
  CHECK(status_of(head(1000, 0), limits) == 414);
  const auto rest = 128 - head(0, 0).size();
  CHECK(status_of(head(0, rest), limits) == 0);
  CHECK(status_of(head(0, rest + 1), limits) == 431);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nX: b\r\n\r\n", limits) == 0);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nX: b\r\nX: b\r\n\r\n", limits) == 431);
}

TEST_CASE("A header that is too long or damaged is rejected before its end") {
  CHECK(serve::scan_head(std::string(9000, 'a'), 0, {}).refusal->status == 414);
  CHECK(serve::scan_head("GET / HTTP/1.1\r\n" + std::string(17000, 'a'), 0, {}).refusal->status == 431);
  CHECK(serve::scan_head("GET / HTTP/1.1\n", 0, {}).refusal->status == 400);
  const auto begun = serve::scan_head("GET / HTTP/1.1\r\nHost: a\r\n\r", 0, {});
  CHECK(begun.length == 0);
  CHECK_FALSE(begun.refusal);
}
