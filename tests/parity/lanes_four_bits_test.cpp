// Whole quantized models on emulated lanes, as target of speculation too.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_adapters.hpp"
#include "support/gpu_batches.hpp"
#include "support/gpu_models.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("four-bit models on 32 lanes") { check_four_bits(backend::Lanes32{}); }

TEST_CASE("adapters on a four-bit model on 32 lanes") { check_adapted_four_bits(backend::Lanes32{}); }

TEST_CASE("a GGUF file of every block type on lanes gives the logits of its dequantized weights") {
  const auto path = fixture("gguf/all-types.gguf");
  const auto goldens = read_golden_file(fixture("gguf/all-types.golden.json"));
  check_goldens(load(path, backend::Lanes32{}), goldens, 0.15);
  check_goldens(load(path, backend::Lanes64{}), goldens, 0.15);
}

TEST_CASE("speculation on a GGUF file of every block type gives plain text on lanes", "[long]") {
  const auto path = fixture("gguf/all-types.gguf");
  const LoadOptions floats{.weights = WeightType::bf16};  // a similar model
  check_speculation_of([&] { return load(path, backend::Lanes32{}, floats); },
                       [&] { return load(path, backend::Lanes32{}); });
}

TEST_CASE("a row's bits do not depend on other sequences with weights in blocks", "[long]") {
  const auto path = fixture("gguf/all-types.gguf");
  check_batches(path, backend::Lanes32{}, backend::Lanes32{1}, 5, 7);
  check_batches(path, backend::Lanes64{1}, backend::Lanes64{}, 2, 8);
}

TEST_CASE("experts in MXFP4 give the expected logits on lanes, and speculation with them gives plain text") {
  const auto path = fixture(GENERATE("gguf/gpt-oss-mxfp4.gguf", "models/gpt-oss-mxfp4"));
  CAPTURE(path);
  const auto goldens = read_golden(fixture("models/gpt-oss"));
  const double tolerance = 0.15 * std::max(1.0, largest_logit(goldens) / 10);
  check_goldens(load(path, backend::Lanes32{}), goldens, tolerance);
  check_goldens(load(path, backend::Lanes64{}), goldens, tolerance);
  check_speculation(path, backend::Lanes32{}, path, backend::Lanes32{});
}
