// The routes, their access rules, and the server's reports about itself.
#include <algorithm>
#include <catch2/catch.hpp>

#include "serve/api/fake_service.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;

TEST_CASE("an unknown path, an unsupported method, and a body of another type are errors") {
  FakeServer server;
  CHECK(server.ask("/v1/nothing", "{}").status == 404);
  const FakeOutput wrong = server.ask("/v1/completions", "", "GET");
  CHECK(wrong.status == 405);
  CHECK(wrong.headers == serve::HttpHeaders{{"Allow", "POST, OPTIONS"}});
  CHECK(server.ask("/v1/models", "", "GET").status == 200);
  CHECK(server.ask("/v1/models/alias", "", "GET").json()["id"] == "alias");
  CHECK(server.ask("/v1/models/../secret", "", "GET").status == 404);
}

TEST_CASE("a body nested 100,000 deep, duplicate names, and bytes that are not UTF-8 are rejected") {
  FakeServer server;
  for (const std::string& body : {std::string(100000, '['), std::string(R"({"a":1,"a":2})"),
                                  std::string("{\"a\":\"\xFF\"}"), std::string("5"), std::string()}) {
    const FakeOutput out = server.ask("/v1/completions", body);
    CHECK(out.status == 400);
    CHECK(out.json()["error"]["type"] == "invalid_request_error");
    CHECK(out.json()["error"]["param"].is_null());
  }
}

TEST_CASE("routes below /v1 work without it, trailing slashes are ignored, and names are decoded once") {
  FakeServer server;
  for (const char* root : {"/v1", ""}) {
    for (const char* end : {"", "/", "//"}) {
      CAPTURE(root, end);
      const auto at = [&](const std::string& path) { return root + path + end; };
      CHECK(server.ask(at("/models"), "", "GET").json()["object"] == "list");
      CHECK(server.ask(at("/models/alias"), "", "GET").json()["id"] == "alias");
      CHECK(server.ask(at("/models/%61li%61s"), "", "GET").json()["id"] == "alias");
      CHECK(server.ask(at("/models/%2561lias"), "", "GET").status == 404);
      CHECK(server.ask(at("/models/%FF%00"), "", "GET").status == 404);
      CHECK(server.ask(at("/models/a%4"), "", "GET").status == 400);
      CHECK(server.ask(at("/health"), "", "GET").status == 200);
      for (const char* path : {"/completions", "/chat/completions", "/embeddings"}) {
        CHECK(server.ask(at(path), "{}").status == 400);
        CHECK(server.ask(at(path), "", "GET").status == 405);
      }
      CHECK(server.ask(at("/load_lora_adapter"), "{}").status == 404);
    }
  }
  CHECK(server.ask("/version/", "", "GET").status == 200);
  for (const char* path : {"/v1", "/v1/", "/v1/v1/models", "/v1/metrics", "/v1x/models", "x", "/modelsx"}) {
    CHECK(server.ask(path, "", "GET").status == 404);
  }
}

TEST_CASE("OPTIONS lists the methods of a path, and needs no key") {
  FakeServer server({.keys = {"first"}, .reading = {}, .load_adapters = true});
  const auto allowed = [&](const std::string& path) {
    const FakeOutput out = server.ask(path, "", "OPTIONS");
    return out.status == 200 ? out.headers.at(0).second : std::to_string(out.status);
  };
  CHECK(allowed("*") == "GET, HEAD, POST, OPTIONS");
  for (const char* path : {"/completions", "/chat/completions", "/embeddings", "/load_lora_adapter"}) {
    CHECK(allowed(path) == "POST, OPTIONS");
    CHECK(allowed(std::string("/v1") + path) == "POST, OPTIONS");
  }
  for (const char* path : {"/tokenize", "/detokenize"}) CHECK(allowed(path) == "POST, OPTIONS");
  for (const char* path : {"/", "/v1/models", "/models/some%20name", "/health", "/ping", "/version", "/load",
                           "/metrics", "/openapi.json", "/tokenizer_info"}) {
    CHECK(allowed(path) == "GET, HEAD, OPTIONS");
  }
  CHECK(allowed("/nothing") == "404");
  CHECK(server.ask("/v1/models", "", "DELETE").headers.at(0).second == "GET, HEAD, OPTIONS");
}

TEST_CASE("any of the keys opens the computing routes, nothing else does, and health needs none") {
  FakeServer server({.keys = {"first", "second"}, .reading = {}});
  for (const std::string given : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer first ", "Basic first", "first",
                                  "Bearerfirst", "Bearer  ", "Bearers first"}) {
    server.authorization = given;
    CHECK(server.ask("/v1/models", "", "GET").status == 401);
    CHECK(server.ask("/tokenize", R"({"prompt": "x"})").status == 401);
    CHECK(server.ask("/health", "", "GET").status == 200);
  }
  for (const std::string given : {"Bearer first", "Bearer second", "bearer first", "BEARER second", "Bearer  first"}) {
    server.authorization = given;
    CHECK(server.ask("/v1/models", "", "GET").status == 200);
  }
}

TEST_CASE("health fails while the server drains, and after a fault of the engine") {
  FakeServer server;
  server.service->fault_id = "gpu.failed";
  const FakeOutput faulty = server.ask("/health", "", "GET");
  CHECK(faulty.status == 503);
  CHECK(faulty.json()["error"]["slm_id"] == "gpu.failed");
  server.service->fault_id.clear();
  CHECK(server.ask("/health", "", "GET").status == 200);
  server.api->drain();
  CHECK(server.ask("/health", "", "GET").status == 503);
}

TEST_CASE("unknown fields of a route are listed in a header, and rejected by a strict server") {
  FakeServer server, strict({.reading = {.strict_fields = true}});
  const std::string tokenize = R"({"prompt": "x", "promt": 1})", detokenize = R"({"tokens": [1], "promt": 1})";
  const serve::HttpHeaders named{{"X-Slm-Ignored-Fields", "promt"}};
  CHECK(server.ask("/tokenize", tokenize).headers == named);
  CHECK(server.ask("/detokenize", detokenize).headers == named);
  CHECK(server.ask("/tokenize", R"({"prompt": "x"})").headers.empty());
  FakeOutput stream;
  server.begin("/v1/completions", R"({"prompt": "x", "promt": 1, "stream": true})")->poll(stream);
  CHECK(stream.headers.back() == named.front());
  for (const auto& [path, body] : {std::pair{"/tokenize", tokenize},
                                   {"/detokenize", detokenize},
                                   {"/v1/completions", tokenize},
                                   {"/v1/embeddings", R"({"input": "x", "promt": 1})"}}) {
    const FakeOutput refused = strict.ask(path, body);
    CHECK(refused.status == 400);
    CHECK(refused.json()["error"]["slm_id"] == "serve.unknown-field");
    CHECK(refused.json()["error"]["param"] == "promt");
  }
  CHECK(server.ask("/v1/embeddings", R"({"input": "x", "embd_normalize": -1})").json()["error"]["param"] ==
        "embd_normalize");
}

TEST_CASE("texts are tokenized with or without control tokens, and with the pieces of their tokens") {
  FakeServer server;
  const auto tokens = [&](const std::string& fields) {
    return server.ask("/tokenize", R"({"content": "a<|endoftext|>", )" + fields + "}").json()["tokens"];
  };
  const slm::Json parsed = tokens(R"("parse_special": true)"), plain = tokens(R"("parse_special": false)");
  CHECK(parsed.back() == 0);
  CHECK(plain.size() > parsed.size());
  CHECK(std::find(plain.begin(), plain.end(), 0) == plain.end());
  const slm::Json pieces = tokens(R"("with_pieces": true)");
  REQUIRE(pieces.size() == parsed.size());
  CHECK(pieces[0] == slm::Json{{"id", parsed[0]}, {"piece", "a"}});
  const slm::Json smile =
      server.ask("/tokenize", "{\"content\": \"\xF0\x9F\x99\x82\", \"with_pieces\": true}").json()["tokens"];
  CHECK(smile[0]["piece"][0] == 0xF0);
}
