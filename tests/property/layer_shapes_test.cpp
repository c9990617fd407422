// Layers of different shapes and residual streams: which keys and values a cache keeps, weights in few bits, and both
// forms of config.json.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
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
#include "support/random_weights.hpp"
#include "support/shaped_configs.hpp"
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

TEST_CASE("residual streams share keys and values between layers of one kind") {
  const AnyModel model = load(fixture("models/gemma3n"), backend::Cpu{1});
  const KvLayout layout = detail::paged(model.pool()).layout();
  REQUIRE(layout.kinds().size() == 2);
  CHECK(layout.page_bytes(0) == 2 * 2 * 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 12)));
  CHECK(layout.page_bytes(1) == 2 * 2 * static_cast<std::size_t>(kv_head_bytes(KvFormat::f32, 12)));
  for (const auto& [layer, source] : {std::pair{3, 2}, {4, 1}}) {
    CHECK(layout.layer(layer).kind == layout.layer(source).kind);
    CHECK(layout.layer(layer).keys == layout.layer(source).keys);
  }
}

TEMPLATE_TEST_CASE("tokens beyond the table of layers' inputs have its first row", "", backend::Reference,
                   backend::Cpu) {
  const TemporaryFolder folder;
  Json config = gemma3n_config();
  config["vocab_size_per_layer_input"] = 90;
  write_random_weights(folder.path() / "short", config, 4);
  const Checkpoint source(folder.path() / "short");
  std::vector<Tensor> tensors;
  std::vector<std::byte> rows;
  for (const auto& [name, stored] : source.tensors()) {
    Tensor& tensor = tensors.emplace_back(*stored);
    if (name != "model.embed_tokens_per_layer.weight") continue;
    REQUIRE(tensor.shape == std::vector<std::int64_t>{90, 5 * 32});
    const std::size_t row = tensor.size_bytes / 90;
    rows.assign(tensor.bytes, tensor.bytes + tensor.size_bytes);
    for (int i = 90; i < 101; ++i) rows.insert(rows.end(), tensor.bytes, tensor.bytes + row);
    tensor.shape[0] = 101;
    tensor.bytes = rows.data();
    tensor.size_bytes = rows.size();
  }
  config["vocab_size_per_layer_input"] = 101;
  std::filesystem::create_directories(folder.path() / "whole");
  write_safetensors(folder.path() / "whole" / "model.safetensors", tensors);
  std::ofstream(folder.path() / "whole" / "config.json") << config;
  const std::vector<Token> text{3, 89, 90, 95, 100, 0, 90, 12};
  const AnyModel whole = load(folder.path() / "whole", TestType{});
  CHECK(equal_bits(logits_in_pieces(load(folder.path() / "short", TestType{}), text, 3),
                   logits_in_pieces(whole, text, 3)));
  CHECK_FALSE(equal_bits(logits_in_pieces(whole, {90}, 1), logits_in_pieces(whole, {0}, 1)));
}

TEST_CASE("layers of different shapes in 4-bit codes have the logits of their values") {
  for (const Json& config : shaped_configs()) {
    CAPTURE(config.at("model_type").get<std::string>(), config.contains("num_experts"));
    const TemporaryFolder folder;
    write_random_weights(folder.path() / "floats", config, 3);
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
  for (const Json& config : shaped_configs()) {
    const TemporaryFolder folder;
    write_random_weights(folder.path(), config, 5);
    const AnyModel model = load(folder.path(), backend::Cpu{2});
    const auto text = some_text(9, 70, 101);
    const auto exact = logits_in_pieces(model, text, 70);
    AutoregressiveDecoder plain{model};
    for (const int bits : {8, 4}) {
      CAPTURE(config.at("model_type").get<std::string>(), config.contains("num_experts"), bits);
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
