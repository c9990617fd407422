// Bytes become requests, for any chunks.
#include "http/reader.hpp"

#include <catch2/catch.hpp>
#include <string>

using serve::HttpLimits;
using serve::RequestReader;
using State = serve::RequestReader::State;

namespace {

struct Outcome {
  State state = State::head;
  int status = 0;
  std::string body;
  std::size_t taken = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome read(const std::string& bytes, std::size_t piece, const HttpLimits& limits = {}) {
  RequestReader reader(limits);
  Outcome outcome;
  while (outcome.taken < bytes.size() && (reader.state() == State::head || reader.state() == State::body)) {
    outcome.taken += reader.feed(std::string_view(bytes).substr(outcome.taken, piece));
  }
  outcome.state = reader.state();
  outcome.status = reader.refusal().status;
  if (outcome.state == State::complete) outcome.body = reader.take().request.body;
  return outcome;
}

/// The result of a request, which must not depend on the chunks.
Outcome read(const std::string& bytes, const HttpLimits& limits = {}) {
  const auto whole = read(bytes, bytes.size(), limits);
  for (const std::size_t piece : {1, 2, 3, 7, 64}) {
    CAPTURE(bytes, piece);
    const auto pieces = read(bytes, piece, limits);
    CHECK(pieces.state == whole.state);
    CHECK(pieces.status == whole.status);
    CHECK(pieces.body == whole.body);
    if (whole.state == State::complete) CHECK(pieces.taken == whole.taken);
  }
  return whole;
}

const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";

}  // namespace

TEST_CASE("A request ends by its length, and the next one begins there") {
  const std::string next = "GET / HTTP/1.1\r\n";
  for (const std::string request : {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    CHECK(read(request + next) == Outcome{State::complete, 0, "", request.size()});
  }
  for (const auto& request :
       {post + "Content-Length: 0\r\n\r\n", post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    CHECK(read(request + next) == Outcome{State::complete, 0, "", request.size()});
  }
  const auto sized = post + "Content-Length: 5\r\n\r\nabcde";
  CHECK(read(sized + next) == Outcome{State::complete, 0, "abcde", sized.size()});
  CHECK(read(post + "Content-Length: 5\r\n\r\nabcd").state == State::body);
  const auto pieces = chunked + "3\r\nabc\r\n00A;name=\"v\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  CHECK(read(pieces + next) == Outcome{State::complete, 0, "abc0123456789", pieces.size()});
}

TEST_CASE("A request has the contents of its header") {
  HttpLimits limits;
  RequestReader reader(limits);
  const std::string bytes =
      "HEAD /a/b?c=d?e HTTP/1.1\r\nHost: a\r\nContent-Type: Application/JSON ; charset=utf-8\r\nAuthorization: Bearer "
      "k\r\n"
      "X-Request-Id: id-1\r\nConnection: close\r\n\r\n";
  CHECK(reader.feed(bytes) == bytes.size());
  const auto read = reader.take();
  CHECK(read.head_only);
  CHECK(read.request.method == "GET");
  CHECK(read.request.path == "/a/b");
  CHECK(read.request.query == "c=d?e");
  CHECK(read.request.content_type == "application/json");
  CHECK(read.request.authorization == "Bearer k");
  CHECK(read.request.id == "id-1");
  CHECK_FALSE(read.keep_alive);
}

TEST_CASE("Trailers are ignored, and an id with other than plain characters is ignored") {
  HttpLimits limits;
  RequestReader reader(limits);
  reader.feed(
      "POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer "
      "k\r\n\r\n");
  REQUIRE(reader.state() == State::complete);
  const auto read = reader.take();
  CHECK(read.request.authorization.empty());
  CHECK(read.request.id.empty());
}

TEST_CASE("Ambiguous chunks are rejected") {
  for (const auto* body : {"+3\r\nabc\r\n0\r\n\r\n",
                           "0x3\r\nabc\r\n0\r\n\r\n",
                           " 3\r\nabc\r\n0\r\n\r\n",
                           "-1\r\n\r\n",
                           "\r\n\r\n",
                           "g\r\n\r\n",
                           "3\nabc\r\n0\r\n\r\n",
                           "3\rabc\r\n0\r\n\r\n",
                           "3\r\nabcd\r\n0\r\n\r\n",
                           "3\r\nabc\n0\r\n\r\n",
                           "3\r\nabc0\r\n\r\n",
                           "3 4\r\nabc\r\n0\r\n\r\n",
                           "3 a=b\r\nabc\r\n0\r\n\r\n",
                           "3 \nabc\r\n0\r\n\r\n",
                           "3 \x0b\r\nabc\r\n0\r\n\r\n",
                           "\t3\r\nabc\r\n0\r\n\r\n",
                           "3;a\nb\r\nabc\r\n0\r\n\r\n",
                           "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n",

                           "0\r\nX\r\n\r\n",
                           "0\r\n: a\r\n\r\n",
                           "0\r\nX : a\r\n\r\n",
                           "0\r\nX: a\r\n b: c\r\n\r\n",
                           "0\r\nX: a\n\r\n\r\n",
                           "0\r\nX: a\rb\r\n\r\n",

                           "000000003\r\nabc\r\n0\r\n\r\n",
                           "10000000000000003\r\nabc\r\n0\r\n\r\n",
                           "0;\n\r\n\r\n",
                           "0\n\r\n\r\n"}) {
    CAPTURE(body);
    CHECK(read(chunked + body).status == 400);
  }
}

TEST_CASE("Spaces are allowed after the size of a chunk and in its extensions") {
  for (const std::string behind : {" ", "\t", " \t ", " ;a", "\t;a=b", "; a", " ; a = b ; c\t=\t\"d\"", ";a= b"}) {
    CHECK(read(chunked + "3" + behind + "\r\nabc\r\n0" + behind + "\r\n\r\n").body == "abc");
  }
  CHECK(read(chunked + "3" + std::string(64, ' ') + "\r\nabc\r\n0\r\n\r\n").body == "abc");
  CHECK(read(chunked + "3" + std::string(65, ' ') + "\r\nabc\r\n0\r\n\r\n").status == 400);
}

TEST_CASE("Empty lines before a request are ignored") {
  const std::string request = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const std::string before : {"\r\n", "\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n"}) {
    CHECK(read(before + request) == Outcome{State::complete, 0, "", before.size() + request.size()});
  }
  CHECK(read(std::string(100'000, '\n')).status == 400);
  for (const std::string before : {"\n", "\r", "\r\n\n", "\r\r\n", "\r\n ", " \r\n"}) {
    CHECK(read(before + request).status == 400);
  }
  HttpLimits limits;
  RequestReader reader(limits);
  std::size_t taken = 0;
  for (int i = 0; i < 100'000; ++i) taken += reader.feed(i % 2 == 0 ? "\r" : "\n");
  CHECK(taken == 100'000);
  CHECK_FALSE(reader.begun());
  reader.feed("G");
  CHECK(reader.begun());
}

TEST_CASE("A request has the path and the query of its URI, and the page that sends it") {
  HttpLimits limits;
  RequestReader reader(limits);
  reader.feed(
      "OPTIONS HTTP://b:80/a%20b?c HTTP/1.1\r\nHost: other\r\nOrigin: https://p.q\r\n"
      "access-control-request-method: POST\r\nAccess-Control-Request-Headers: a, b\r\n\r\n");
  REQUIRE(reader.state() == State::complete);
  const auto read = reader.take();
  CHECK(read.request.method == "OPTIONS");
  CHECK(read.request.path == "/a%20b");
  CHECK(read.request.query == "c");
  CHECK(read.cross_origin.origin == "https://p.q");
  CHECK(read.cross_origin.method == "POST");
  CHECK(read.cross_origin.fields == "a, b");
}

TEST_CASE("Chunk extensions and trailers are bounded") {
  const auto extended = [](std::size_t bytes) {
    return chunked + "3;" + std::string(bytes, 'a') + "\r\nabc\r\n0\r\n\r\n";
  };
  CHECK(read(extended(64)).state == State::complete);
  CHECK(read(extended(65)).status == 400);
  CHECK(read(chunked + "3;" + std::string(100'000, 'a')).status == 400);
  CHECK(read(chunked + "0;" + std::string(100, 'a') + "\r\n\r\n").status == 400);
  CHECK(read(chunked + "0\r\nX: " + std::string(100'000, 'a')).status == 400);
  std::string trailers = chunked + "0\r\n";
  for (int i = 0; i < 10'000; ++i) trailers += "X: y\r\n";
  CHECK(read(trailers).status == 400);
}

TEST_CASE("A body has a limit of bytes, for both kinds of length") {
  HttpLimits limits;
  limits.body_bytes = 10;
  CHECK(read(post + "Content-Length: 10\r\n\r\n0123456789", limits).state == State::complete);
  CHECK(read(post + "Content-Length: 11\r\n\r\n", limits).status == 413);
  CHECK(read(chunked + "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", limits).state == State::complete);
  CHECK(read(chunked + "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n", limits).status == 413);
  CHECK(read(chunked + "FFFFFFFF\r\n", limits).status == 413);
}

TEST_CASE("A large body is read completely") {
  std::string body(1 << 20, 'x');
  for (std::size_t i = 0; i < body.size(); i += 4096) body[i] = static_cast<char>(i >> 12);
  const auto sized = post + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const bool sized_same = read(sized, 16 << 10).body == body;
  const bool chunked_same = read(chunked + "100000\r\n" + body + "\r\n0\r\n\r\n", 1000).body == body;
  CHECK(sized_same);
  CHECK(chunked_same);
}
