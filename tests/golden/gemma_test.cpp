// Gemma 3 270M from its GGUF file (Q4_K_M) against the results of transformers for the same weights, dequantized.
// Skipped if the file is not in build/models.
#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/speculative.hpp"
#include "support/paths.hpp"
#include "support/real_model.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The model, or an empty path without it or its golden values.
std::filesystem::path gemma() {
  const auto golden = test_data("gemma-3-270m/golden_f32.json");
  return golden.empty() ? std::filesystem::path{} : built_model("gemma-3-270m.Q4_K_M.gguf");
}

std::string text_of(const Json& entry) {
  std::string text = entry.value("text", "");
  const std::string hex = entry.value("hex", "");
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return text;
}

}  // namespace

TEST_CASE("Gemma's GGUF file gives the logits of its dequantized weights, beyond its window too") {
  const auto path = gemma();
  SLM_SKIP_WITHOUT(path, "build/models/gemma-3-270m.Q4_K_M.gguf or its golden values");
  const AnyModel model = load(path, backend::Cpu{});
  CHECK(model.info().vocab == 262144);
  // Kernels of blocks round activations to 16 bits, which may change logits (here up to 28) by 2e-4 of the largest.
  check_last_logits(model, read_golden_cases("gemma-3-270m"), {5.6e-3, 5.6e-3 * 262144, 1e-3});
  check_greedy_texts(model, read_golden_cases("gemma-3-270m"), {"list", "wikitext-window"});
}

TEST_CASE("Gemma's weights in fp32 give the golden logits and greedy texts") {
  const auto path = gemma();
  SLM_SKIP_WITHOUT(path, "build/models/gemma-3-270m.Q4_K_M.gguf or its golden values");
  const AnyModel model = load(path, backend::Cpu{}, {.weights = WeightType::f32});
  check_last_logits(model, read_golden_cases("gemma-3-270m"), {2e-4, 13, 1e-4});
  check_greedy_texts(model, read_golden_cases("gemma-3-270m"), {"scripts", "wikitext-window"});
}

TEST_CASE("Gemma's tokenizer gives the golden ids and texts") {
  const auto path = gemma();
  SLM_SKIP_WITHOUT(path, "build/models/gemma-3-270m.Q4_K_M.gguf or its golden values");
  const Tokenizer tokenizer = Tokenizer::from(path);
  for (const Json& entry : read_golden_cases("gemma-3-270m")) {
    if (entry.contains("text")) {
      CHECK(tokenizer.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<std::vector<Token>>());
    }
  }
  const Json strings = read_golden_cases("gemma-3-270m", "strings");
  CHECK(strings.size() == 65);
  for (const Json& entry : strings) {
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    INFO(entry.dump());
    CHECK(tokenizer.encode(text_of(entry), false) == ids);
    CHECK(tokenizer.decode(ids, false) == entry.at("decoded").get<std::string>());
    CHECK(tokenizer.decode(ids) == entry.at("without_special").get<std::string>());
  }
}
