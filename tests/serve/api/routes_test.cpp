// Which paths there are, who may ask, and what the server says of itself.
#include <catch2/catch.hpp>

#include "serve/api/fake_service.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;

TEST_CASE("a path that is not there, a method that it has not, and a body of another type") {
  FakeServer server;
  CHECK(server.ask("/v1/nothing", "{}").status == 404);
  const FakeOutput wrong = server.ask("/v1/completions", "", "GET");
  CHECK(wrong.status == 405);
  CHECK(wrong.headers == serve::HttpHeaders{{"Allow", "POST"}});
  CHECK(server.ask("/v1/models", "", "GET").status == 200);
  CHECK(server.ask("/v1/models/alias", "", "GET").json()["id"] == "alias");
  CHECK(server.ask("/v1/models/../secret", "", "GET").status == 404);
}

TEST_CASE("a body nested 100,000 deep, names twice, and bytes that are not UTF-8 are refused") {
  FakeServer server;
  for (const std::string& body : {std::string(100000, '['), std::string(R"({"a":1,"a":2})"),
                                  std::string("{\"a\":\"\xFF\"}"), std::string("5"), std::string()}) {
    const FakeOutput out = server.ask("/v1/completions", body);
    CHECK(out.status == 400);
    CHECK(out.json()["error"]["type"] == "invalid_request_error");
    CHECK(out.json()["error"]["param"].is_null());
  }
}

TEST_CASE("keys: one of them opens what computes, nothing else does, and health needs none") {
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
