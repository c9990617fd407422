// Models with recurrent layers on emulated lanes: each fixture on one width, batches, and speculation.
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_batches.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Lanes32;
using backend::Lanes64;

TEST_CASE("models with recurrent layers on 32 lanes give the expected logits, in whatever pieces") {
  const std::string name =
      GENERATE("lfm2", "lfm2moe-scaled", "qwen35-text", "qwen35-mha", "qwen35moe", "qwen3next-dense", "bamba",
               "granitehybrid", "granitehybrid-moe", "falcon-h1", "nemotron-h", "nemotron-h-moe");
  CAPTURE(name);
  check_fixture(fixture("models/" + name), Lanes32(static_cast<int>(name.size() % 2)));  // either order of threads
}

TEST_CASE("models with recurrent layers on 64 lanes give the expected logits, in whatever pieces", "[long]") {
  const std::string name = GENERATE("lfm2-conv4-bias", "lfm2-plain-width", "qwen35", "lfm2moe", "qwen3next",
                                    "granitehybrid-groups", "falcon-h1-norm");
  CAPTURE(name);
  check_fixture(fixture("models/" + name), Lanes64(static_cast<int>(name.size() % 2)));
}

TEST_CASE("on 32 lanes a row of a model with recurrent layers has the same bits as alone") {
  check_batches(fixture("models/falcon-h1"), Lanes32{}, Lanes32{1}, 9, 7);
}

TEST_CASE("on lanes a row of any model with recurrent layers has the same bits as alone", "[long]") {
  const std::string name = GENERATE("lfm2", "qwen35", "nemotron-h-moe");
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 9, 7);
  if (name == "qwen35") check_batches(fixture("models/" + name), Lanes64{1}, Lanes64{}, 5, 8);
}

TEST_CASE("models with recurrent layers on lanes: speculation gives the plain text", "[long]") {
  const std::string name = GENERATE("lfm2moe", "qwen3next", "falcon-h1", "granitehybrid-moe");
  CAPTURE(name);
  const auto folder = fixture("models/" + name);
  check_speculation(folder, Cpu{}, folder, Lanes32{});
  check_speculation(folder, Lanes64{}, folder, Lanes64{});
}
