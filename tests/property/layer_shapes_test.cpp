// Layers of different shapes: which keys and values a cache keeps, weights in few bits, and both forms of config.json.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/errors.hpp"
#include "support/logits_in_pieces.hpp"
#include "support/outputs.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_gemma4.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("a layer that reads the keys and values of another one keeps none") {
  const AnyModel model = load(fixture("models/gemma4-e2b"), backend::Cpu{1});
  const KvLayout layout = detail::paged(model.pool()).layout();
  REQUIRE(layout.kinds().size() == 2);
  // Of five layers three keep keys and values: two with a window and heads of 12, one with heads of 20.
  CHECK(layout.page_bytes(0) == 2 * 2 * 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 12)));
  CHECK(layout.page_bytes(1) == 2 * 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 20)));
  for (const auto& [layer, source] : {std::pair{3, 1}, {4, 2}}) {
    CHECK(layout.layer(layer).kind == layout.layer(source).kind);
    CHECK(layout.layer(layer).keys == layout.layer(source).keys);
    CHECK(layout.layer(layer).values == layout.layer(source).values);
  }
  CHECK(layout.layer(0).kind == layout.layer(1).kind);
  CHECK(layout.layer(0).keys != layout.layer(1).keys);
}

TEST_CASE("keys that are values take the place of both, and heads of another shape have separate pages") {
  const AnyModel model = load(fixture("models/gemma4-moe"), backend::Cpu{1});
  const KvLayout layout = detail::paged(model.pool()).layout();
  REQUIRE(layout.kinds().size() == 2);
  CHECK(layout.page_bytes(0) == 2 * 2 * 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 12)));
  CHECK(layout.page_bytes(1) == 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 20)));
}

TEST_CASE("layers of different shapes in 4-bit codes have the logits of their values") {
  for (const bool sparse : {false, true}) {
    CAPTURE(sparse);
    const TemporaryFolder folder;
    write_random_gemma4(folder.path() / "floats", sparse, 3);
    const Checkpoint source(folder.path() / "floats");
    const QuantizedForm form{.layout = Int4Layout::awq_gemm, .group = 32};
    quantized(source, form).write(folder.path() / "codes");
    dequantized(source, form).write(folder.path() / "values");
    const auto text = some_text(7, 60, 101);
    const AnyModel codes = load(folder.path() / "codes", backend::Cpu{2});
    const auto expected = logits_in_pieces(load(folder.path() / "values", backend::Reference{}), text, 60);
    CHECK(largest_difference(logits_in_pieces(load(folder.path() / "codes", backend::Reference{}), text, 60),
                             expected) < 1e-3);
    CHECK(largest_difference(logits_in_pieces(codes, text, 60), expected) < 5e-3);
    CHECK(equal_bits(logits_in_pieces(codes, text, 60), logits_in_pieces(codes, text, 1)));
    CHECK(equal_bits(logits_in_pieces(codes, text, 7), logits_in_pieces(codes, text, 1)));
  }
}

TEST_CASE(
    "layers of different shapes in GGUF's blocks: rows do not depend on the cut, and drafts of few bits change no "
    "text") {
  for (const bool sparse : {false, true}) {
    const TemporaryFolder folder;
    write_random_gemma4(folder.path(), sparse, 5);
    const AnyModel model = load(folder.path(), backend::Cpu{2});
    const auto text = some_text(9, 70, 101);
    const auto exact = logits_in_pieces(model, text, 70);
    AutoregressiveDecoder plain{model};
    for (const int bits : {8, 4}) {
      CAPTURE(sparse, bits);
      const AnyModel draft = load(folder.path(), backend::Cpu{2}, {.bits = bits});
      CHECK(largest_difference(logits_in_pieces(draft, text, 70), exact) > 0);
      CHECK(equal_bits(logits_in_pieces(draft, text, 70), logits_in_pieces(draft, text, 1)));
      SpeculativeDecoder decoder{draft, model, {.draft_tokens = 4}};
      std::int64_t accepted = 0;
      const Sampling sampling{.max_new_tokens = 80, .temperature = 0.7f, .seed = 3, .ignore_end_tokens = true};
      const std::vector<Token> prompt(text.begin(), text.begin() + 30);
      REQUIRE(text_of(decoder, prompt, sampling, &accepted) == text_of(plain, prompt, sampling));
      CHECK(accepted > 10);
    }
  }
}
