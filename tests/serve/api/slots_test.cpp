// Saved slots over a fake engine: names of files, their contents, and the texts that slots keep.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "serve/api/fake_service.hpp"
#include "support/temporary.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;
using slm::testing::TemporaryFolder;

namespace {

struct SlotServer : FakeServer {
  explicit SlotServer(const std::filesystem::path& folder)
      : FakeServer({.reading = {}, .most_running = 2, .slot_folder = folder}) {}

  FakeOutput slot(const std::string& id, const std::string& action, const std::string& body = "{}") {
    const auto exchange = api->handle({.method = "POST",
                                       .path = "/slots/" + id,
                                       .query = "action=" + action,
                                       .content_type = body.empty() ? "" : "application/json",
                                       .authorization = {},
                                       .id = "1",
                                       .body = body},
                                      [] {});
    if (!service->asked.empty() && action == "restore") service->asked.back().end(slm::FinishReason::length);
    FakeOutput out;
    exchange->poll(out);
    REQUIRE(out.ended);
    return out;
  }
  /// Answers a prompt of three tokens with the token 7.
  void complete(const std::string& fields) {
    const auto exchange = begin("/completion", R"({"prompt": [1, 2, 3])" + fields + "}");
    service->asked.back().say(7);
    service->asked.back().end(slm::FinishReason::length);
    FakeOutput out;
    exchange->poll(out);
    REQUIRE(out.status == 200);
  }
};

const std::string file = R"({"filename": "a.slot"})";

}  // namespace

TEST_CASE("a slot keeps its last text, which is saved, erased and restored") {
  const TemporaryFolder scratch;
  SlotServer server(scratch.path());
  CHECK(server.slot("1", "save", file).json()["n_saved"] == 0);
  server.complete(R"(, "id_slot": 1)");
  server.complete("");
  server.complete(R"(, "id_slot": 5)");
  const slm::Json saved = server.slot("1", "save", file).json();
  CHECK(saved["id_slot"] == 1);
  CHECK(saved["n_saved"] == 4);
  CHECK(saved["n_written"] == std::filesystem::file_size(scratch.path() / "a.slot"));
  CHECK(server.slot("0", "save", file).json()["n_saved"] == 0);
  CHECK(server.slot("1", "save", file).json()["n_saved"] == 4);
  CHECK(server.slot("1", "erase", "").json()["n_erased"] == 4);
  CHECK(server.slot("1", "erase").json()["n_erased"] == 0);
  const slm::Json restored = server.slot("0", "restore", R"({"filename": "a.slot", "cache_salt": "x"})").json();
  CHECK(restored["n_restored"] == 4);
  CHECK(restored["n_read"] == saved["n_written"]);
  const slm::Request& asked = server.service->asked.back().request;
  CHECK(asked.prompt == std::vector<slm::Token>{1, 2, 3, 7});
  CHECK(asked.sampling.max_new_tokens == 1);
  CHECK(asked.tenant != 0);
  CHECK(server.slot("0", "erase").json()["n_erased"] == 4);
}

TEST_CASE("names of files outside the folder are rejected") {
  const TemporaryFolder scratch;
  std::filesystem::create_directory(scratch.path() / "slots");
  SlotServer server(scratch.path() / "slots");
  server.complete(R"(, "id_slot": 0)");
  for (const std::string name :
       {"", ".", "..", "../a", "a/b", "/etc/a", "a\\\\b", "a..b", ".a", "a.", " a", "a ", "a\\u0000b", "a\\n", "C:a"}) {
    CAPTURE(name);
    for (const char* action : {"save", "restore"}) {
      const FakeOutput out = server.slot("0", action, R"({"filename": ")" + name + "\"}");
      CHECK(out.status == 400);
      CHECK(out.json()["error"]["param"] == "filename");
    }
  }
  CHECK(server.slot("0", "save").status == 400);
  CHECK(server.slot("0", "save", R"({"filename": ")" + std::string(201, 'a') + "\"}").status == 400);
  CHECK(std::filesystem::is_empty(scratch.path() / "slots"));
  CHECK(server.slot("0", "save", R"({"filename": "käse 1.slot"})").status == 200);
  CHECK(server.slot("0", "restore", file).json()["error"]["slm_id"] == "serve.slot-file");  // it does not exist
}

TEST_CASE("damaged files, and those of other models, are rejected") {
  const TemporaryFolder scratch;
  SlotServer server(scratch.path());
  const std::string begin = R"({"format": "slm-slot-1", "model": "demo", "vocab": 2048, "tokens": )";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), begin, begin + "5}", begin + "[-1]}", begin + "[2048]}",
        begin + "[1.5]}", begin + R"(["1"]})", begin + "[" + std::string(10000, ' ') + "1]}",
        std::string(R"({"format": "slm-slot-2", "model": "demo", "vocab": 2048, "tokens": [1]})"),
        std::string(R"({"format": "slm-slot-1", "model": "other", "vocab": 2048, "tokens": [1]})"),
        std::string(R"({"format": "slm-slot-1", "model": "demo", "vocab": 9, "tokens": [1]})")}) {
    CAPTURE(text);
    std::ofstream(scratch.path() / "a.slot") << text;
    CHECK(server.slot("0", "restore", file).json()["error"]["slm_id"] == "serve.slot-file");
  }
  std::filesystem::remove(scratch.path() / "a.slot");
  std::filesystem::create_directory(scratch.path() / "a.slot");
  CHECK(server.slot("0", "restore", file).status == 400);
  CHECK(server.slot("0", "save", file).status == 500);
  std::ofstream(scratch.path() / "empty") << begin << "[]}";
  CHECK(server.slot("0", "restore", R"({"filename": "empty"})").json()["n_restored"] == 0);
  CHECK(server.service->asked.empty());
}

TEST_CASE("slots need a folder, a number, and an action") {
  const TemporaryFolder scratch;
  SlotServer server(scratch.path());
  for (const char* id : {"2", "-1", "x", "1x", "99999999999", "%30"}) CHECK(server.slot(id, "erase").status == 400);
  for (const char* action : {"", "SAVE", "remove"}) CHECK(server.slot("0", action, file).status == 400);
  CHECK(server.ask("/slots/0", "", "GET").status == 405);
  CHECK(server.ask("/slots/0", "x").status == 400);
  FakeServer without;
  const FakeOutput out = without.ask("/slots/0", "{}");
  CHECK(out.status == 501);
  CHECK(out.json()["error"]["slm_id"] == "serve.no-slots");
}
