// Streams of requests with an adapter: their status is sent when the adapter is loaded.
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "serve/api/fake_service.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/model/load.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using serve::test::FakeOutput;
using serve::test::FakeServer;

TEST_CASE("a stream whose adapter cannot be loaded answers 400, also if the engine learns it before the stream") {
  const slm::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "empty");
  folder.write("empty/adapter_config.json", "{}");
  folder.write("empty/adapter_model.safetensors", "");
  const auto model = slm::load(slm::testing::demo_pair("draft"), slm::backend::Cpu(1));
  const auto store = std::make_shared<slm::AdapterStore>(model, slm::AdapterStoreOptions{.folder = folder.path()});
  for (const auto& [path, body] :
       {std::pair{"/v1/completions", R"({"prompt": "a")"},
        {"/completion", R"({"prompt": "a")"},
        {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}])"},
        {"/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}])"}}) {
    CAPTURE(path);
    serve::ServedModel served = serve::test::demo_model();
    served.adapters = store;
    FakeServer server({}, std::move(served));
    const auto exchange = server.begin(path, std::string(body) + R"(, "model": "empty", "stream": true})");
    FakeOutput out;
    auto& asked = server.service->asked.at(0);
    CHECK_THROWS_AS(asked.scheduling.adapter.wait(), slm::Error);
    CHECK(asked.scheduling.adapter.settled());
    exchange->poll(out);
    CHECK(out.status == 0);  // nothing is sent yet

    asked.fail(slm::Error("adapter.missing-tensor", "it has no tensors", "Copy it again"));
    exchange->poll(out);
    CHECK(out.status == 400);
    CHECK(out.ended);
  }
}
