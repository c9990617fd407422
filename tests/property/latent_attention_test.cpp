// Latent attention: what its cache keeps, weights in few bits, and the values of other KV formats.
#include <algorithm>
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
#include "support/logits_in_pieces.hpp"
#include "support/outputs.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_weights.hpp"
#include "support/shaped_configs.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("the cache of latent attention keeps one row a token for all heads") {
  const AnyModel model = load(fixture("models/deepseek-v3"), backend::Cpu{1});
  const KvLayout layout = detail::paged(model.pool()).layout();
  REQUIRE(layout.kinds().size() == 1);
  // Two layers with a latent of 16 and a rotated key of 8; keys and values of four heads would be 4 * (20 + 10).
  const auto row = static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 16 + 8));
  CHECK(layout.page_bytes(0) == 2 * row);
  CHECK(layout.layer(1).keys == static_cast<std::int64_t>(row));
  CHECK(layout.layer(1).values == layout.layer(1).keys);
}

TEST_CASE("latent attention in 4-bit codes has the logits of their values") {
  for (const int query_rank : {0, 32}) {
    CAPTURE(query_rank);
    const TemporaryFolder folder;
    write_random_weights(folder.path() / "floats", latent_config(query_rank), 3);
    const Checkpoint source(folder.path() / "floats");
    const QuantizedForm form{.layout = Int4Layout::awq_gemm, .group = 32};
    quantized(source, form).write(folder.path() / "codes");
    dequantized(source, form).write(folder.path() / "values");
    const auto text = some_text(7, 60, 101);
    const AnyModel codes = load(folder.path() / "codes", backend::Cpu{2});
    const auto expected = logits_in_pieces(load(folder.path() / "values", backend::Reference{}), text, 60);
    const AnyModel reference = load(folder.path() / "codes", backend::Reference{});
    CHECK(largest_difference(logits_in_pieces(reference, text, 60), expected) < 1e-3);
    CHECK(largest_difference(logits_in_pieces(codes, text, 60), expected) < 5e-3);
    CHECK(equal_bits(logits_in_pieces(codes, text, 60), logits_in_pieces(codes, text, 1)));
    CHECK(equal_bits(logits_in_pieces(codes, text, 7), logits_in_pieces(codes, text, 1)));
  }
}

TEST_CASE("latent attention in GGUF's blocks: rows do not depend on the cut, and drafts of few bits change no text") {
  const TemporaryFolder folder;
  write_random_weights(folder.path(), latent_config(32), 5);
  const AnyModel model = load(folder.path(), backend::Cpu{2});
  const auto text = some_text(9, 70, 101);
  const auto exact = logits_in_pieces(model, text, 70);
  AutoregressiveDecoder plain{model};
  for (const int bits : {8, 4}) {
    CAPTURE(bits);
    const AnyModel draft = load(folder.path(), backend::Cpu{2}, {.bits = bits});
    const double difference = largest_difference(logits_in_pieces(draft, text, 70), exact);
    CHECK(difference > 0);
    if (bits == 8) CHECK(difference < 0.2);
    CHECK(equal_bits(logits_in_pieces(draft, text, 70), logits_in_pieces(draft, text, 1)));
    SpeculativeDecoder decoder{draft, model, {.draft_tokens = 4}};
    std::int64_t accepted = 0;
    const Sampling sampling{.max_new_tokens = 80, .temperature = 0.7f, .seed = 3, .ignore_end_tokens = true};
    const std::vector<Token> prompt(text.begin(), text.begin() + 30);
    REQUIRE(text_of(decoder, prompt, sampling, &accepted) == text_of(plain, prompt, sampling));
    CHECK(accepted > 10);
  }
}

TEST_CASE("latent attention with every KV format: rows do not depend on the cut, and logits are those of Reference") {
  const auto text = some_text(4, 80, 113);
  const auto folder = fixture("models/glm4-moe-lite");
  for (const KvFormat format : kv_formats) {
    CAPTURE(name_of(format));
    const LoadOptions options{.cache_format = format};
    const AnyModel model = load(folder, backend::Cpu{2}, options);
    const auto whole = logits_in_pieces(model, text, 80);
    CHECK(equal_bits(whole, logits_in_pieces(model, text, 1)));
    CHECK(equal_bits(whole, logits_in_pieces(model, text, 9)));
    const auto expected = logits_in_pieces(load(folder, backend::Reference{}, options), text, 80);
    // A value close to a tie is stored as its other neighbour.
    CHECK(largest_difference(whole, expected) < (format == KvFormat::f32 ? 1e-4 : 1e-2));
  }
}
