// Any bytes as the body of a request, for the route of the first byte: an error, or requests that an engine accepts.
// The answers, whole or streamed, are JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>

#include "fuzzer.hpp"
#include "serve/api/calling_server.hpp"
#include "slm/decode/request.hpp"
#include "support/temporary.hpp"

namespace {

using serve::test::FakeOutput;
using serve::test::FakeServer;

constexpr const char* paths[] = {"/v1/completions",
                                 "/v1/chat/completions",
                                 "/v1/embeddings",
                                 "/tokenize",
                                 "/detokenize",
                                 "/v1/messages",
                                 "/v1/responses",
                                 "/v1/messages/count_tokens",
                                 "/v1/responses/input_tokens"};
// In the upper half of the first byte's values.
constexpr const char* llama_paths[] = {"/completion", "/infill", "/apply-template",
                                       "/embedding",  "/rerank", "/slots/1"};

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

SLM_FUZZER(data, size) {
  if (size == 0) return 0;
  static const serve::ServedModel served = serve::test::calling_model("{% if enable_thinking %}<think>\n{% endif %}");
  static const slm::testing::TemporaryFolder folder;
  [[maybe_unused]] static const auto file =
      folder.write("a", R"({"format": "slm-slot-1", "model": "demo", "vocab": 2048, "tokens": [1, 2, 3]})");
  static FakeServer server({.reading = {}, .slot_folder = folder.path()}, served);
  const slm::ModelInfo& model = served.info;
  server.service->asked.clear();
  FakeOutput out;
  const std::string body(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool llama = data[0] >= 128;
  const auto exchange =
      server.begin(llama ? llama_paths[data[0] % std::size(llama_paths)] : paths[data[0] % std::size(paths)], body,
                   "POST", "action=restore");
  for (auto& asked : server.service->asked) {
    slm::check_request(asked.request, model);
    if (asked.request.pooling) {
      asked.answer->embedding = {1, 0};
    } else {
      for (const slm::Token token : {68, 300, 255}) asked.say(token, token == 300, -0.5);
    }
    asked.end(slm::FinishReason::length);
  }
  exchange->poll(out);
  require(out.ended);
  require(out.status == 200 || out.status / 100 == 4 || out.status == 501 || out.status == 503);
  if (out.type == "application/json") {
    const slm::Json answer = out.json();
    require((answer.is_object() && answer.contains("error") && !answer["error"].is_null()) == (out.status != 200));
  } else if (llama) {
    for (const slm::Json& event : out.events(false)) {
      require(!event.empty() || body.find("response_fields") != body.npos);
    }
  } else if (out.text.starts_with("event: ")) {
    require(!out.named_events().empty());
  } else {
    for (const slm::Json& event : out.events()) require(event.contains("choices"));
  }
  return 0;
}
