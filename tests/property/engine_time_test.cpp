// Engine::step_for(): the work of an application's own loop, by a clock that advances with the rows of each step.
#include <catch2/catch.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "slm/engine/engine.hpp"
#include "slm/engine/engine_definition.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;
using namespace std::chrono_literals;

namespace {

/// A model whose steps take 1 ms, and 0.1 ms per row.
class Timed {
 public:
  Timed(ToyOptions options, double& now) : model_(std::move(options)), now_(&now) {}

  const ModelInfo& info() const { return model_.info(); }
  KvPool pool(const KvPoolOptions& options) const { return model_.pool(options); }
  Sequence sequence() const { return model_.sequence(); }
  void forward(Batch& batch) const {
    double rows = 0;
    for (const Batch::Item& item : batch.items()) rows += static_cast<double>(item.count);
    *now_ += 1e-3 + 1e-4 * rows;
    model_.forward(batch);
  }

 private:
  ToyModel model_;
  double* now_;
};

Request request_of(int prompt, int answer) {
  return {.prompt = some_text(1, prompt, 12),
          .sampling = {.max_new_tokens = answer, .temperature = 0, .ignore_end_tokens = true}};
}

}  // namespace

TEST_CASE("Slices of time end in time once the costs are known, and change no text") {
  double now = 0;
  EngineOptions options;
  options.speculation.clock = [&now] { return now; };
  Engine engine{Drafter{}, Timed(ToyOptions{.vocab = 12, .seed = 3}, now), options};

  Answer whole = engine.submit(request_of(900, 60));
  engine.run();
  std::vector<Token> expected, found;
  while (const auto token = whole.try_next()) expected.push_back(token->token);

  Answer answer = engine.submit(request_of(900, 60));
  int slices = 0, late = 0;
  for (; !answer.over() && slices < 1000; ++slices) {
    const double before = now;
    CHECK(engine.step_for(5ms));
    if (now - before > 5.01e-3) ++late;
    CHECK(now - before < 8e-3);
    while (const auto token = answer.try_next()) found.push_back(token->token);
  }
  CHECK(found == expected);
  CHECK(late <= 2);
  CHECK(slices >= (900 * 0.1 + 60 * 1.1) / 5);  // milliseconds of all rows and steps
  CHECK(slices < 60);
  CHECK_FALSE(engine.step_for(5ms));
}

TEST_CASE("A slice that is shorter than a step still computes one") {
  double now = 0;
  EngineOptions options;
  options.speculation.clock = [&now] { return now; };
  Engine engine{Drafter{}, Timed(ToyOptions{.vocab = 12, .seed = 3}, now), options};
  Answer answer = engine.submit(request_of(40, 5));
  int slices = 0;
  for (; !answer.over() && slices < 100; ++slices) {
    CHECK(engine.step_for(0ns));
    while (answer.try_next()) {
    }
  }
  CHECK(answer.over());
  CHECK(answer.stats().emitted == 5);
}
