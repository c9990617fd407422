// A GGUF file of every block type on the CPU: rows in one step have the bits of separate rows, and speculation gives
// the tokens of plain decoding.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "slm/speculative.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::CpuOptions;
using backend::Int4Activations;

namespace {

const std::vector<Token> prompt{5, 90, 0, 31, 31, 7, 96, 64, 2, 18, 42, 5, 90, 0, 31, 400, 12, 5, 90};

std::vector<CpuOptions> devices() {
  std::vector<CpuOptions> all;
  for (const backend::Isa isa : backend::available_isas()) {
    for (const auto activations : {Int4Activations::bits16, Int4Activations::bits8}) {
      all.push_back({.threads = 2, .isa = isa, .activations = activations});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("tokens of a file in blocks have the same logits one by one and together, on any number of threads") {
  const CpuOptions options = GENERATE(from_range(devices()));
  const auto path = fixture("gguf/all-types.gguf");
  Session together(load(path, Cpu{options}));
  Session alone(load(path, Cpu{CpuOptions{.threads = 1, .isa = options.isa, .activations = options.activations}}));
  const int rows = static_cast<int>(prompt.size());
  const View<const float, 2> logits = together.forward(prompt, rows);
  for (int r = 0; r < rows; ++r) {
    const View<const float, 2> row = alone.forward(std::span(prompt).subspan(static_cast<std::size_t>(r), 1), 1);
    CAPTURE(name_of(options.isa), r);
    REQUIRE(std::memcmp(row.row(0), logits.row(r), static_cast<std::size_t>(row.extent(1)) * sizeof(float)) == 0);
  }
}

TEST_CASE("speculation on a file in blocks gives the tokens of plain decoding, greedy and sampled") {
  const CpuOptions options = GENERATE(from_range(devices()));
  const auto path = fixture("gguf/all-types.gguf");
  const AnyModel model = load(path, Cpu{options});
  const AnyModel draft = load(path, Cpu{options}, {.weights = WeightType::bf16});  // a similar one
  for (const float temperature : {0.0f, 1.0f}) {
    const Sampling sampling{.max_new_tokens = 80, .temperature = temperature, .seed = 3, .ignore_end_tokens = true};
    const auto generate = [&](auto&& decoder) {
      std::vector<Token> made;
      decoder.generate(std::vector<Token>(prompt), sampling, [&](Token token) { made.push_back(token); });
      return made;
    };
    const std::vector<Token> expected = generate(AutoregressiveDecoder{model});
    CAPTURE(name_of(options.isa), temperature);
    CHECK(expected.size() == 80);
    for (const int length : {1, 4, 7}) {
      CHECK(generate(SpeculativeDecoder{draft, model, {.draft_tokens = length}}) == expected);
      CHECK(generate(SpeculativeDecoder{Lookup{}, model, {.draft_tokens = length}}) == expected);
    }
  }
}
