// Every family's tiny model on 64 emulated lanes.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_models.hpp"
#include "support/newer_fixtures.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes64;

TEST_CASE("fixture models on 64 lanes give the expected logits, for any chunks") {
  const std::string name = GENERATE(from_range(gpu_fixtures));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes64(static_cast<int>(name.size() % 2)));  // either order of threads
}

TEST_CASE("newer families on 64 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE(from_range(newer_traits));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes64(static_cast<int>(name.size() % 2)));
}

TEST_CASE("mixtures of experts on 64 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE(from_range(expert_traits));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes64(static_cast<int>(name.size() % 2)));
}

TEST_CASE("models with layers of different shapes on 64 lanes give the expected logits, in whatever pieces") {
  const std::string name = GENERATE(from_range(shaped_traits));
  CAPTURE(name);
  check_fixture(fixture(text("models/", name)), Lanes64(static_cast<int>(name.size() % 2)));
}
