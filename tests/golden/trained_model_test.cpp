// A trained model (TinyStories-656K) reproduces its published greedy text exactly.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "slm/backend/reference/reference.hpp"
#include "slm/decode/perplexity.hpp"
#include "slm/io/json.hpp"
#include "slm/speculative.hpp"
#include "support/paths.hpp"

using namespace slm;
using slm::testing::test_data;

namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Decoder>
std::string generate(Decoder& decoder, const Tokenizer& tokenizer, const std::string& prompt, int max_new_tokens) {
  const std::vector<Token> tokens = tokenizer.encode(prompt);
  std::string whole = prompt;
  decoder.generate(tokens, Sampling{.max_new_tokens = max_new_tokens, .temperature = 0.0f},
                   TextStream{tokenizer, tokens, [&](std::string_view piece) { whole += piece; }});
  return whole;
}

}  // namespace

TEST_CASE("the published greedy text, plainly and speculatively, on both backends") {
  const auto folder = test_data("models/tinystories-656k-f32");
  const auto narrow = test_data("models/tinystories-656k-bf16");
  const auto published = test_data("parity/tinystories-656k_hf_greedy200.txt");
  SLM_SKIP_WITHOUT(folder, "the trained model TinyStories-656K");
  SLM_SKIP_WITHOUT(published, "its published text");
  const Tokenizer tokenizer = Tokenizer::from(folder);
  const std::string prompt = "One day, a girl named Lily went for a ";
  std::string expected = read_text(published);
  while (expected.ends_with('\n')) expected.pop_back();

  SECTION("plain, reference") {
    AutoregressiveDecoder decoder{load(folder, backend::Reference{})};
    CHECK(generate(decoder, tokenizer, prompt, 200) == expected);
  }
  SECTION("plain, cpu") {
    AutoregressiveDecoder decoder{load(folder, backend::Cpu{})};
    CHECK(generate(decoder, tokenizer, prompt, 200) == expected);
  }
  SECTION("speculative, draft on one backend and target on the other, in different precisions") {
    SpeculativeDecoder decoder{load(narrow, backend::Reference{}), load(folder, backend::Cpu{}), {.draft_tokens = 5}};
    CHECK(generate(decoder, tokenizer, prompt, 200) == expected);
  }
  SECTION("speculative without a draft model") {
    SpeculativeDecoder decoder{Lookup{}, load(folder, backend::Cpu{}), {.draft_tokens = 3}};
    CHECK(generate(decoder, tokenizer, prompt, 200) == expected);
  }
}

TEST_CASE("prompt ids, texts, logits and likelihoods agree with a float64 reference") {
  const auto folder = test_data("models/tinystories-656k-f32");
  const auto reference = test_data("parity/tinystories-656k_float64_reference.json");
  SLM_SKIP_WITHOUT(folder, "the trained model TinyStories-656K");
  SLM_SKIP_WITHOUT(reference, "its float64 reference");
  const Tokenizer tokenizer = Tokenizer::from(folder);
  Session model(load(folder, backend::Cpu{}));
  const Json cases = Json::parse(read_text(reference));
  REQUIRE(cases.size() >= 4);
  for (const Json& golden : cases) {
    const auto prompt_ids = golden.at("prompt_ids").get<std::vector<Token>>();
    const auto all_ids = golden.at("all_ids").get<std::vector<Token>>();
    CHECK(tokenizer.encode(golden.at("prompt").get<std::string>()) == prompt_ids);

    model.truncate(0);
    const auto logits = model.forward(all_ids, static_cast<int>(all_ids.size()));
    const float* last_prompt_row = logits.row(static_cast<std::int64_t>(prompt_ids.size()) - 1);
    for (const Json& entry : golden.at("last_prompt_top5")) {
      CHECK(last_prompt_row[entry[0].get<int>()] == Approx(entry[1].get<double>()).margin(1e-4));
    }
    double nll = 0;
    for (std::size_t i = 0; i + 1 < all_ids.size(); ++i) {
      const float* row = logits.row(static_cast<std::int64_t>(i));
      double sum = 0;
      for (int v = 0; v < 2048; ++v) sum += std::exp(double{row[v]});
      nll += std::log(sum) - double{row[all_ids[i + 1]]};
    }
    CHECK(nll / static_cast<double>(all_ids.size() - 1) ==
          Approx(golden.at("mean_nll_of_all_ids").get<double>()).margin(1e-4));

    AutoregressiveDecoder decoder{load(folder, backend::Cpu{})};
    std::vector<Token> generated = prompt_ids;
    decoder.generate(
        std::vector<Token>(prompt_ids),
        Sampling{.max_new_tokens = static_cast<int>(all_ids.size() - prompt_ids.size()), .temperature = 0.0f},
        [&](Token token) { generated.push_back(token); });
    CHECK(generated == all_ids);
    const int new_tokens = static_cast<int>(all_ids.size() - prompt_ids.size());
    CHECK(generate(decoder, tokenizer, golden.at("prompt").get<std::string>(), new_tokens) ==
          golden.at("text").get<std::string>());
  }
}

TEST_CASE("perplexity agrees with a computation in float64 that shares no code") {
  const auto folder = test_data("models/tinystories-656k-f32");
  const auto file = test_data("text_calibration/calm_pplx.txt");
  SLM_SKIP_WITHOUT(folder, "the trained model TinyStories-656K");
  SLM_SKIP_WITHOUT(file, "the text calm_pplx.txt");
  AnyModel model = load(folder, backend::Cpu{});
  std::vector<Token> tokens = Tokenizer::from(folder).encode(read_text(file));
  const Perplexity whole = perplexity(model, tokens);
  CHECK(whole.window == 512);  // the model's context
  CHECK(whole.tokens == 15600);
  CHECK(whole.mean() == Approx(6.210376039839302).epsilon(1e-6));
  tokens.resize(2000);
  const Perplexity strided = perplexity(model, tokens, {.window = 256, .stride = 100});
  CHECK(strided.tokens == 1999);
  CHECK(strided.mean() == Approx(6.094234099778505).epsilon(1e-6));
}
