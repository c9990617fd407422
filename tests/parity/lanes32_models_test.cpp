// Every family's tiny model on 32 emulated lanes.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_models.hpp"
#include "support/newer_fixtures.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;

TEST_CASE("fixture models on 32 lanes give the expected logits, for any chunks") {
  const std::string name = GENERATE(from_range(gpu_fixtures));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes32(static_cast<int>(name.size() % 2)));  // either order of threads
}

TEST_CASE("newer families on 32 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE(from_range(newer_traits));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes32(static_cast<int>(name.size() % 2)));
}

TEST_CASE("mixtures of experts on 32 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE(from_range(expert_traits));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes32(static_cast<int>(name.size() % 2)));
}

TEST_CASE("models with layers of different shapes on 32 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE("gemma3n", "gemma4-moe", "deepseek-v3");
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes32(static_cast<int>(name.size() % 2)));
}

TEST_CASE("other models with layers of different shapes on 32 lanes give the expected logits", "[long]") {
  const std::string name = GENERATE("gemma4-e2b", "deepseek-v2-lite", "glm4-moe-lite");
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes32(static_cast<int>(name.size() % 2)));
}
