// An engine with drafts, adapters and shared pages, with each allocation failing in turn.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/allocations.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The whole answer, or none if it ends with an error.
std::optional<std::vector<Token>> read(Answer answer) {
  std::vector<Token> tokens;
  try {
    while (const auto token = answer.next()) tokens.push_back(token->token);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  return tokens;
}

template <class Draft>
void check_engine(const Draft& draft, const AnyModel& target, const AdapterRef& adapter) {
  std::vector<Request> requests(3);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = some_text(3, 66 + static_cast<int>(i), least_shape.vocab);
    requests[i].sampling = {.max_new_tokens = 5};
    requests[i].sampling.temperature = 0.5f;
  }
  requests[2].adapter = adapter;
  EngineOptions options;
  options.cache_memory = std::size_t{1} << 20;
  options.max_running = 2;
  options.share_prefixes = true;
  const auto serve = [&](auto& engine) {
    std::vector<std::optional<std::vector<Token>>> answers;
    for (const Request& request : requests) {
      Answer answer = engine.submit(request);
      engine.run();
      answers.push_back(read(std::move(answer)));
    }
    return answers;
  };
  Engine whole(draft, target, options);
  const auto expected = serve(whole);
  int wrong = 0, held = 0, failed = 0;
  fail_each_allocation([&](Failure& failure) {
    Engine engine(draft, target, options);
    std::vector<Answer> answers;
    answers.reserve(requests.size());
    std::vector<Request> sent = requests;
    failed += !failure.spares([&] {
      for (Request& request : sent) answers.push_back(engine.submit(std::move(request)));
      engine.run();
    });
    if (engine.stats().waiting + engine.stats().running > 0) engine.run();  // requests submitted before one failed
    held += engine.stats().waiting + engine.stats().running != 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto found = read(answers[i]);
      wrong += found && found != expected[i];
    }
    answers.clear();
    held += engine.stats().cache_used != engine.stats().cache_idle;
    wrong += serve(engine) != expected;
  });
  CHECK(wrong == 0);
  CHECK(held == 0);
  CHECK(failed > 20);
}

}  // namespace

TEST_CASE("an engine runs the next requests and frees all pages, after any failing allocation") {
  const TemporaryFolder folder;
  const auto path = write_least_model(folder.path() / "target", 1);
  const AnyModel target = load(path, backend::Cpu(1));
  const AnyModel draft = load(write_least_model(folder.path() / "draft", 2), backend::Cpu(1));
  write_random_adapter(folder.path() / "adapter", Checkpoint(path), {.seed = 1, .rank = 2});
  const AdapterRef adapter = load_adapter(folder.path() / "adapter", target);
  check_engine(Drafter{}, target, adapter);
  check_engine(draft, target, adapter);
}
