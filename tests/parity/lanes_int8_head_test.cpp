// A head of 8 bits on emulated lanes of both widths.
#include "slm/backend/gpu/lanes.hpp"
#include "slm/quantize.hpp"
#include "support/gpu_batches.hpp"
#include "support/random_checkpoint.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;

namespace {

/// A small model in 4 bits, the head as asked.
std::filesystem::path write_model(const std::filesystem::path& folder, bool tied, bool int8_head) {
  const auto model = folder / "model", out = folder / (int8_head ? "int8" : "float");
  write_random_checkpoint<bfloat16_t>(model, tiny_shape, 21, tied);
  quantize::Options options;
  options.search = false;
  options.int8_head = int8_head;
  quantize::quantize(model, out, {}, options);
  return out;
}

}  // namespace

TEST_CASE("on lanes a head of 8 bits gives the logits of Reference") {
  const bool tied = GENERATE(true, false);
  CAPTURE(tied);
  const TemporaryFolder folder;
  const auto int8 = write_model(folder.path(), tied, true), plain = write_model(folder.path(), tied, false);
  const char* head = tied ? "model.embed_tokens.weight" : "lm_head.weight";
  CHECK(Checkpoint(int8).find(head)->dtype == DType::q8_0);
  CHECK(worst_difference(int8, Lanes32{}) < 0.05);
  CHECK(worst_difference(int8, Lanes64{}) < 0.05);
  // The rounded head is the head that is read.
  const auto logits = [](const std::filesystem::path& model) {
    Session session(load(model, Lanes32{}));
    return copy_of(session.forward(std::vector<Token>{5, 90, 0, 31}, 4));
  };
  CHECK(logits(int8) != logits(plain));
}

TEST_CASE("on lanes with a head of 8 bits a row's bits do not depend on other sequences") {
  const TemporaryFolder folder;
  const auto model = write_model(folder.path(), true, true);
  check_batches(model, Lanes32{}, Lanes32{1}, 5, 7);
  check_batches(model, Lanes64{1}, Lanes64{}, 2, 8);
}

TEST_CASE("on lanes speculative text with a head of 8 bits is plain text") {
  const TemporaryFolder folder;
  const auto model = write_model(folder.path(), false, true);
  check_speculation_of([&] { return load(folder.path() / "model", Lanes32{}); },
                       [&] { return load(model, Lanes32{}); });
}
