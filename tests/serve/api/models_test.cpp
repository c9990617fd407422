// Several models in one process, with loads that the test ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "serve/api/fake_service.hpp"

using namespace std::chrono_literals;
using serve::test::FakeOutput;
using serve::test::FakeService;

namespace {

/// Models of 10 bytes and a budget for two. Loads wait while they are held.
struct ModelsServer {
  explicit ModelsServer(std::vector<std::string> names, std::uint64_t budget = 20, serve::ApiOptions options = {}) {
    serve::ModelList list{.budget = budget};
    for (const std::string& name : names) list.sources.push_back({.name = name, .path = "/secret/" + name});
    list.outline = [this](const serve::ModelSource& source) {
      const std::lock_guard lock(mutex);
      if (faults.contains(source.name))
        throw slm::Error("io.unreadable", "'" + source.path + "' is damaged", "Mend it");
      return serve::ModelOutline{.bytes = source.name == "large" ? budget_of_large : 10, .context = 64};
    };
    list.load = [this](const serve::ModelSource& source, const std::function<bool()>& is_over) {
      std::unique_lock lock(mutex);
      ++loads[source.name];
      while (held) {
        if (news.wait_for(lock, 1ms, [this] { return !held; })) break;
        lock.unlock();  // is_over takes the mutex of the models
        const bool over = is_over();
        lock.lock();
        if (over) throw slm::Error("serve.load-ended", "the load has ended", "Start again");
      }
      auto fake = std::make_unique<FakeService>();
      services[source.name] = fake.get();
      serve::ServedModel model = serve::test::demo_model();
      model.names = {source.name};
      return serve::LoadedModel{std::move(model), std::move(fake)};
    };
    api = std::make_unique<serve::Api>(std::move(list), std::move(options));
  }

  void hold(bool whether) {
    {
      const std::lock_guard lock(mutex);
      held = whether;
    }
    news.notify_all();
  }
  std::unique_ptr<serve::Exchange> begin(const std::string& path, const std::string& body,
                                         const std::string& method = "POST", const std::string& query = {}) {
    return api->handle({.method = method,
                        .path = path,
                        .query = query,
                        .content_type = "application/json",
                        .authorization = {},
                        .id = "1",
                        .body = body},
                       [this] { ++wakes; });
  }
  /// Polls until the loaded model has the request.
  bool reaches(serve::Exchange& exchange, const std::string& model) {
    FakeOutput out;
    for (int i = 0; i < 20000 && !out.ended; ++i) {
      exchange.poll(out);
      {
        const std::lock_guard lock(mutex);
        if (services[model] != nullptr && !services[model]->asked.empty()) return true;
      }
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  /// Polls until there is an answer.
  static FakeOutput finish(serve::Exchange& exchange) {
    FakeOutput out;
    for (int i = 0; i < 20000 && !out.ended; ++i) {
      exchange.poll(out);
      if (!out.ended) std::this_thread::sleep_for(1ms);
    }
    REQUIRE(out.ended);
    return out;
  }
  FakeOutput ask(const std::string& path, const std::string& body, const std::string& method = "POST",
                 const std::string& query = {}) {
    const auto exchange = begin(path, body, method, query);
    return finish(*exchange);
  }
  FakeOutput tokenize(const std::string& model) {
    return ask("/tokenize", slm::json_text(slm::Json{{"model", model}, {"prompt", "def"}}));
  }
  /// The states of /v1/models.
  std::map<std::string, std::string> states() {
    std::map<std::string, std::string> found;
    const slm::Json models = ask("/v1/models", "", "GET").json();
    for (const slm::Json& card : models["data"]) found[card["id"]] = card["status"]["value"];
    return found;
  }
  bool waits(serve::Exchange& exchange) const {
    FakeOutput out;
    std::this_thread::sleep_for(20ms);
    exchange.poll(out);
    return !out.ended && out.status == 0;
  }

  std::mutex mutex;
  std::condition_variable news;
  bool held = false;
  std::uint64_t budget_of_large = 21;
  std::map<std::string, int> faults, loads;
  std::map<std::string, FakeService*> services;  // dangling once unloaded
  std::atomic<int> wakes{0};
  std::unique_ptr<serve::Api> api;  // its thread ends before the members above
};

using States = std::map<std::string, std::string>;

}  // namespace

TEST_CASE("models load at their first request, and the least recently used one is unloaded for another") {
  ModelsServer server({"a", "b", "c"});
  CHECK(server.states() == States{{"a", "unloaded"}, {"b", "unloaded"}, {"c", "unloaded"}});
  CHECK(server.ask("/v1/models/b", "", "GET").json()["max_model_len"] == 64);
  for (const char* name : {"a", "b", "a"}) CHECK(server.tokenize(name).status == 200);
  CHECK(server.states() == States{{"a", "loaded"}, {"b", "loaded"}, {"c", "unloaded"}});
  CHECK(server.tokenize("c").status == 200);
  CHECK(server.states() == States{{"a", "loaded"}, {"b", "unloaded"}, {"c", "loaded"}});
  CHECK(server.tokenize("b").status == 200);
  CHECK(server.states() == States{{"a", "unloaded"}, {"b", "loaded"}, {"c", "loaded"}});
  CHECK(server.loads == std::map<std::string, int>{{"a", 1}, {"b", 2}, {"c", 1}});
  const std::string page = server.ask("/metrics", "", "GET").text;
  CHECK(page.find("slm:model_loads_total{engine=\"0\",model_name=\"b\"} 2") != page.npos);
  CHECK(page.find("slm:model_evictions_total{engine=\"0\",model_name=\"a\"} 1") != page.npos);
  CHECK(page.find("slm:model_budget_bytes 20") != page.npos);
  std::size_t heads = 0;
  for (std::size_t at = 0; (at = page.find("# TYPE slm:steps_total", at)) != page.npos; ++at) ++heads;
  CHECK(heads == 1);  // with samples of both models
  CHECK(page.find("slm:steps_total{engine=\"0\",model_name=\"c\"}") != page.npos);
}

TEST_CASE("requests choose a model by their field or query, and the first one is the default") {
  ModelsServer server({"a", "b"});
  const auto props = [&](const std::string& query) { return server.ask("/props", "", "GET", query).json(); };
  CHECK(props("")["model_alias"] == "a");
  CHECK(props("model=b")["model_alias"] == "b");
  CHECK(props("x=1&model=%62")["model_alias"] == "b");
  CHECK(server.ask("/slots", "", "GET", "model=b").status == 200);
  CHECK(server.ask("/slots", "", "GET", "model=%6").status == 400);
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/completion", "/infill",
        "/v1/rerank", "/embedding", "/tokenize", "/detokenize", "/apply-template", "/v1/messages/count_tokens"}) {
    CAPTURE(path);
    const FakeOutput out = server.ask(path, R"({"model": "none"})");
    CHECK(out.status == 404);
    CHECK(out.json()["error"]["slm_id"] == "serve.unknown-model");
    CHECK(server.ask(path, R"({"model": 5})").status == 400);
    CHECK(server.ask(path, "x").status == 400);
  }
  CHECK(server.ask("/v1/messages", R"({"model": "none"})").json()["type"] == "error");
  CHECK(server.ask("/props", "", "GET", "model=none").status == 404);
  CHECK(server.ask("/v1/models/none", "", "GET").status == 404);
  const auto exchange = server.begin("/v1/completions", R"({"model": "b", "prompt": "def"})");
  REQUIRE(server.waits(*exchange));  // for its tokens
  auto& asked = server.services["b"]->asked;
  REQUIRE(asked.size() == 1);
  asked[0].end(slm::FinishReason::length);
  CHECK(ModelsServer::finish(*exchange).json()["model"] == "b");
}

TEST_CASE("concurrent first requests load a model once") {
  ModelsServer server({"a"});
  server.hold(true);
  std::vector<std::unique_ptr<serve::Exchange>> exchanges;
  for (int i = 0; i < 20; ++i) exchanges.push_back(server.begin("/tokenize", R"({"prompt": "def"})"));
  CHECK(server.waits(*exchanges.front()));
  CHECK(server.states() == States{{"a", "loading"}});
  CHECK(server.ask("/load", "", "GET").json()["server_load"] == 20);
  exchanges.resize(10);  // the other clients have gone
  server.hold(false);
  for (const auto& exchange : exchanges) CHECK(ModelsServer::finish(*exchange).status == 200);
  CHECK(server.loads["a"] == 1);
  CHECK(server.wakes >= 10);
}

TEST_CASE("a model in use stays, and takes no further requests while another one waits for its memory") {
  ModelsServer server({"a", "b"}, 10);
  auto stream = server.begin("/v1/completions", R"({"model": "a", "prompt": "def"})");
  REQUIRE(server.reaches(*stream, "a"));
  const auto other = server.begin("/tokenize", R"({"model": "b", "prompt": "def"})");
  CHECK(server.waits(*other));
  const auto later = server.begin("/tokenize", R"({"model": "a", "prompt": "def"})");
  CHECK(server.waits(*later));
  CHECK(server.states() == States{{"a", "loaded"}, {"b", "loading"}});
  server.services["a"]->asked[0].end(slm::FinishReason::length);
  CHECK(ModelsServer::finish(*stream).status == 200);
  CHECK(server.waits(*other));  // until the answer is sent
  stream.reset();
  CHECK(ModelsServer::finish(*other).status == 200);
  CHECK(server.waits(*later));
}

TEST_CASE("a model becomes available again when the request that wanted its memory goes away") {
  ModelsServer server({"a", "b"}, 10);
  const auto stream = server.begin("/v1/completions", R"({"model": "a", "prompt": "def"})");
  REQUIRE(server.reaches(*stream, "a"));
  auto other = server.begin("/tokenize", R"({"model": "b", "prompt": "def"})");
  CHECK(server.waits(*other));
  const auto later = server.begin("/tokenize", R"({"model": "a", "prompt": "def"})");
  CHECK(server.waits(*later));
  other.reset();
  CHECK(ModelsServer::finish(*later).status == 200);
  CHECK(server.tokenize("a").status == 200);
  CHECK(server.loads["a"] == 1);
}

TEST_CASE("a failed load is an error without paths, and the next request tries again") {
  ModelsServer server({"a", "large"});
  server.faults["a"] = 1;
  for (int i = 0; i < 2; ++i) {
    const FakeOutput out = server.tokenize("a");
    CHECK(out.status == 500);
    CHECK(out.json()["error"]["slm_id"] == "io.unreadable");
    CHECK(out.json()["error"]["param"] == "model");
    CHECK(out.text.find("damaged") != out.text.npos);
    CHECK(out.text.find("secret") == out.text.npos);
  }
  const slm::Json card = server.ask("/v1/models/a", "", "GET").json();
  CHECK(card["status"]["value"] == "failed");
  CHECK(card["status"]["error"].get<std::string>().find("damaged") != std::string::npos);
  CHECK(server.ask("/v1/messages", R"({"model": "a", "max_tokens": 1, "messages": []})").json()["type"] == "error");
  server.faults.clear();
  CHECK(server.tokenize("a").status == 200);
  CHECK(server.states()["a"] == "loaded");
  CHECK(server.tokenize("large").json()["error"]["slm_id"] == "serve.model-memory");
  CHECK(server.states() == States{{"a", "loaded"}, {"large", "failed"}});
}

TEST_CASE("requests that wait for models are limited, and end with the server") {
  ModelsServer server({"a"}, 20, {.most_waiting = 2});
  server.hold(true);
  std::vector<std::unique_ptr<serve::Exchange>> exchanges;
  for (int i = 0; i < 3; ++i) exchanges.push_back(server.begin("/tokenize", R"({"prompt": "def"})"));
  CHECK(ModelsServer::finish(*exchanges[2]).status == 503);
  CHECK(server.waits(*exchanges[0]));
  server.api->cancel();
  for (std::size_t i = 0; i < 2; ++i) {
    const FakeOutput out = ModelsServer::finish(*exchanges[i]);
    CHECK(out.status == 503);
    CHECK(out.json()["error"]["slm_id"] == "serve.draining");
  }
  CHECK(server.ask("/tokenize", R"({"prompt": "def"})").status == 503);
  exchanges.clear();
  server.api.reset();  // ends the load, which is still held
  CHECK(server.loads["a"] == 1);
}
