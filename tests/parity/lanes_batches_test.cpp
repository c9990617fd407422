// Rows of many sequences in one step, on emulated lanes of both widths: each row has the same bits as alone.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_batches.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;

TEST_CASE("on 32 lanes a row's bits do not depend on another sequence") {
  const std::string name = GENERATE("llama-mha3h", "mistral-swa8", "phi3-longrope", "mpt-alibi-3h", "opt-postln-proj");
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 2, 7);
}

TEST_CASE("on 32 lanes a row's bits do not depend on many other sequences", "[long]") {
  const std::string name = GENERATE("llama-mha3h", "mistral-swa8", "phi3-longrope", "mpt-alibi-3h", "opt-postln-proj");
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 12, 7);
}

TEST_CASE("on 64 lanes a row's bits do not depend on other sequences", "[long]") {
  const std::string name = GENERATE("llama3-gqa-scaled-tied", "qwen3-qknorm-headdim", "gpt2");
  const int count = GENERATE(5, 9);
  CAPTURE(name, count);
  check_batches(fixture("models/" + name), Lanes64{1}, Lanes64{}, count, 8);
}

TEST_CASE("on 32 lanes a row of a mixture of experts has the same bits as alone") {
  check_batches(fixture("models/gpt-oss"), Lanes32{}, Lanes32{1}, 9, 7);
}

TEST_CASE("on lanes a row of any mixture of experts has the same bits as alone", "[long]") {
  const std::string name = GENERATE("qwen3moe", "olmoe", "mixtral", "qwen2moe");
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 9, 7);
  if (name == "qwen3moe") check_batches(fixture("models/" + name), Lanes64{1}, Lanes64{}, 5, 8);
}
