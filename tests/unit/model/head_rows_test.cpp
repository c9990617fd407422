// Logits of single tokens beyond the packed part of a head.
#include "slm/model/head_rows.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "slm/formats/block_rounding.hpp"

using namespace slm;

namespace {

constexpr std::int64_t vocab = 6, columns = 32;
constexpr float none = -std::numeric_limits<float>::infinity();

float weight(std::int64_t row, std::int64_t column) {
  return static_cast<float>((row * 7 + column * 5) % 16 - 8) * 0.25f;
}

float product(std::int64_t row, const std::vector<float>& hidden) {
  float sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) sum += weight(row, c) * hidden[static_cast<std::size_t>(c)];
  return sum;
}

}  // namespace

TEST_CASE("tokens of the text get their logits, others stay as they are") {
  std::vector<float> weights, hidden;
  for (std::int64_t i = 0; i < vocab * columns; ++i) weights.push_back(weight(i / columns, i % columns));
  for (int i = 0; i < columns; ++i) hidden.push_back(static_cast<float>(i % 5) * 0.125f);
  const Tensor head{.name = "head",
                    .dtype = DType::f32,
                    .shape = {vocab, columns},
                    .bytes = reinterpret_cast<const std::byte*>(weights.data()),
                    .size_bytes = weights.size() * sizeof(float)};
  for (const bool in_blocks : {false, true}) {
    for (const float cap : {0.0f, 2.0f}) {
      const detail::HeadRows rows(in_blocks ? rounded_to_blocks(head, 4) : head, 3, cap);
      std::vector<float> logits{1, 2, none, none, none, 9};
      rows.add(std::vector<Token>{0, 2, 4, 4, 5, 1}, hidden, logits.data());
      const float expected = cap == 0 ? product(4, hidden) : cap * std::tanh(product(4, hidden) / cap);
      CAPTURE(in_blocks, cap);
      CHECK(logits[4] == Approx(expected));
      logits[4] = none;
      CHECK(logits == std::vector<float>{1, 2, none, none, none, 9});  // 2 is in the packed part, 5 has a logit
    }
  }
}
