// Every family as target and as draft: speculative text equals plain text, and logits do not depend, bit for bit, on
// the steps of a text or on rollbacks. This includes sliding windows, where the cache drops old positions, and
// LongRoPE, where it becomes invalid.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/newer_fixtures.hpp"
#include "support/outputs.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

const std::vector<std::string> folders{"llama-mha3h",
                                       "mistral-swa8",
                                       "olmo-clip-untied",
                                       "qwen2-swa-from-layer1",
                                       "qwen3-qknorm-headdim",
                                       "phi-partial",
                                       "phi3-swa7",
                                       "phi3-longrope",
                                       "gpt2",
                                       "opt-preln",
                                       "opt-postln-proj",
                                       "mpt-alibi-4h",
                                       "mpt-foundry-3b-like",
                                       "mpt-foundry-qkln-alibi6h",
                                       "mosaicgpt-qkln-alibi",
                                       "mpt-foundry-mqa",
                                       "phi-qknorm-gqa",
                                       "mpt-foundry-gqa-qkgn-swa",
                                       "mosaicgpt-wpe-bias-clip"};
constexpr int vocab = 97;

template <Backend B>
AnyModel load_any(const std::string& name, B device, WeightType weights = WeightType::as_stored) {
  return load(fixture("models/" + name), device, {.weights = weights});
}

std::vector<Token> random_tokens(std::uint64_t seed, std::size_t count) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(mix(seed * 131 + i) % vocab));
  return tokens;
}

std::vector<float> extend(Session<AnyModel>& model, const std::vector<Token>& text, int first, int count, int rows) {
  const auto part = std::span(text).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  const auto logits = model.forward(part, rows);
  return {logits.data, logits.data + logits.size()};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Speculative text of the target with several drafts and draft lengths, compared with its plain text. stranger: a
/// draft with the target's vocabulary; empty: none.
template <class B>
void check_target(const std::string& name, const std::string& stranger) {
  AutoregressiveDecoder plain{load_any(name, B{})};
  std::int64_t accepted = 0;
  for (const int draft_length : {1, 2, 5, 9}) {
    const auto prompt =
        random_tokens(static_cast<std::uint64_t>(draft_length), 2 + static_cast<std::size_t>(draft_length));
    const Sampling sampling{.max_new_tokens = 40,
                            .temperature = draft_length % 2 ? 0.0f : 0.8f,
                            .seed = static_cast<std::uint64_t>(draft_length),
                            .ignore_end_tokens = true};
    const auto expected = text_of(plain, prompt, sampling);
    REQUIRE(expected.size() == prompt.size() + 40);
    CAPTURE(name, stranger, draft_length);
    SpeculativeDecoder same{load_any(name, B{}, WeightType::bf16), load_any(name, B{}), {.draft_tokens = draft_length}};
    REQUIRE(text_of(same, prompt, sampling, &accepted) == expected);
    if (stranger.empty()) continue;
    SpeculativeDecoder other{load_any(stranger, B{}), load_any(name, B{}), {.draft_tokens = draft_length}};
    REQUIRE(text_of(other, prompt, sampling) == expected);
  }
  REQUIRE(accepted > 60);
}

}  // namespace

TEST_CASE("every family, as target and as the draft of another: speculative text equals plain text") {
  for (std::size_t i = 0; i < folders.size(); ++i) {
    check_target<backend::Cpu>(folders[i], folders[(i + 5) % folders.size()]);
  }
}

TEST_CASE("families with recurrent layers: speculative text equals plain text") {
  for (const std::string& name : hybrid_fixtures) check_target<backend::Cpu>(name, {});
  check_target<backend::Reference>(hybrid_fixtures.front(), {});
}

TEST_CASE("every family on the reference backend: speculative text is plain text") {
  for (std::size_t i = 0; i < folders.size(); ++i) {
    check_target<backend::Reference>(folders[i], folders[(i + 3) % folders.size()]);
  }
}

TEST_CASE("newer families, as targets and as drafts: speculative text equals plain text") {
  std::vector<std::string> all = newer_traits;
  all.insert(all.end(), mixture_traits.begin(), mixture_traits.end());
  for (const std::string& name : all) {
    const int words = load_any(name, backend::Cpu{}).info().vocab;
    check_target<backend::Cpu>(name, words == 101 ? name == "glm4" ? "cohere2" : "glm4" : "");
  }
}

TEMPLATE_TEST_CASE("every family: a row's logits have the same bits for any split of the text", "", backend::Reference,
                   backend::Cpu) {
  std::vector<std::string> all = folders;
  all.insert(all.end(), newer_traits.begin(), newer_traits.end());
  all.insert(all.end(), mixture_traits.begin(), mixture_traits.end());
  all.insert(all.end(), hybrid_fixtures.begin(), hybrid_fixtures.end());
  for (const std::string& name : all) {
    Session model(load_any(name, TestType{}));
    const int vocab = model.info().vocab;
    const auto text = random_tokens(3, 40);
    std::vector<std::vector<float>> single;
    for (int i = 0; i < 40; ++i) single.push_back(extend(model, text, i, 1, 1));
    for (const int step : {2, 3, 7, 12}) {
      model.truncate(0);
      // The first step is short: a text that begins beyond LongRoPE's original context has other logits (see extend).
      for (int first = 0; first < 40;) {
        const int count = std::min(step, 40 - first);
        const auto rows = extend(model, text, first, count, count);
        for (int r = 0; r < count; ++r, ++first) {
          CAPTURE(name, step, first);
          REQUIRE(same_bits({rows.begin() + r * vocab, rows.begin() + (r + 1) * vocab},
                            single[static_cast<std::size_t>(first)]));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("a sliding window after any truncation equals a new sequence", "", backend::Reference,
                   backend::Cpu) {
  // Windows of 24; pages before the last 300 positions are freed, the text is longer.
  for (const char* name : {"mistral-long", "qwen2-long"}) {
    Session model(load_any(name, TestType{}));
    const int length = 1000;
    const auto text = random_tokens(9, length + 8);
    std::vector<int> cuts{999, 990, 977, 950, 743, 742, 500, 400, 30, 24, 1, 0};
    if (std::string(TestType::name) == "reference") cuts = {999, 960, 743, 742, 600, 5};
    for (const int to : cuts) {
      model.truncate(std::min(model.length(), to));
      if (model.length() < length) extend(model, text, model.length(), length - model.length(), 0);
      model.truncate(to);
      const auto continued = extend(model, text, to, 5, 5);
      Session fresh(load_any(name, TestType{}));
      if (to > 0) extend(fresh, text, 0, to, 0);
      CAPTURE(name, to);
      REQUIRE(same_bits(continued, extend(fresh, text, to, 5, 5)));
      REQUIRE(model.length() == to + 5);
    }
  }
}

TEST_CASE("a sliding window keeps its own pages and those of a possible rollback, not the whole text") {
  for (const char* name : {"mistral-long", "qwen2-long"}) {
    const AnyModel model = load_any(name, backend::Cpu{});
    const KvPool pool = model.pool();
    const KvLayout& layout = detail::paged(pool).layout();
    Sequence text(pool);
    Batch batch;
    batch.add(text, random_tokens(9, 1000));
    model.forward(batch);
    std::size_t expected = 0;
    for (std::size_t kind = 0; kind < layout.kinds().size(); ++kind) {
      // Positions from 999 - 257 - 24 on, in pages of 64: those from 704 on are five; a whole text has sixteen.
      const std::size_t pages = layout.kinds()[kind].window == 0 ? 16 : 5;
      expected += pages * layout.page_bytes(static_cast<int>(kind));
    }
    CAPTURE(name);
    CHECK(pool.used() == expected);
  }
}

TEST_CASE("speculation over thousands of positions of a sliding window") {
  AutoregressiveDecoder plain{load_any("mistral-long", backend::Cpu{})};
  const auto prompt = random_tokens(4, 30);
  const Sampling sampling{.max_new_tokens = 1500, .temperature = 0.9f, .seed = 5, .ignore_end_tokens = true};
  const auto expected = text_of(plain, prompt, sampling);
  SpeculativeDecoder decoder{
      load_any("qwen2-long", backend::Cpu{}), load_any("mistral-long", backend::Cpu{}), {.draft_tokens = 8}};
  REQUIRE(text_of(decoder, prompt, sampling) == expected);
  SpeculativeDecoder own{load_any("mistral-long", backend::Cpu{}, WeightType::bf16),
                         load_any("mistral-long", backend::Cpu{}),
                         {.draft_tokens = 8}};
  std::int64_t accepted = 0;
  REQUIRE(text_of(own, prompt, sampling, &accepted) == expected);
  REQUIRE(accepted > 700);
}

TEMPLATE_TEST_CASE("LongRoPE: a step across the original context gives each row the result of plain decoding", "",
                   backend::Reference, backend::Cpu) {
  const int original = 16;
  Session model(load_any("phi3-longrope", TestType{}));
  const auto text = random_tokens(6, 40);
  std::vector<std::vector<float>> single;
  for (int i = 0; i < 40; ++i) single.push_back(extend(model, text, i, 1, 1));
  const auto row = [](const std::vector<float>& rows, int r) {
    return std::vector<float>{rows.begin() + r * vocab, rows.begin() + (r + 1) * vocab};
  };
  // Repeated rollback from beyond to within, as by rejected drafts.
  for (int length = original - 6; length < original + 3; ++length) {
    for (const int step : {1, 4, 9}) {
      model.truncate(std::min(length, model.length()));
      if (model.length() < length) extend(model, text, model.length(), length - model.length(), 0);
      const auto rows = extend(model, text, length, step, step);
      for (int r = 0; r < step; ++r) {
        CAPTURE(length, step, r);
        REQUIRE(same_bits(row(rows, r), single[static_cast<std::size_t>(length + r)]));
      }
    }
  }
  // Crosses without logits from within; and a prompt beyond the limit from its first step on.
  model.truncate(10);
  REQUIRE(same_bits(extend(model, text, 10, 12, 1), single[21]));
  model.truncate(0);
  REQUIRE(same_bits(extend(model, text, 0, 22, 1), single[21]));
  REQUIRE(same_bits(extend(model, text, 22, 3, 1), single[24]));
  // The two tables must differ: row 10 of a prompt of 22 differs from row 10 of a growing text.
  model.truncate(0);
  REQUIRE_FALSE(same_bits(row(extend(model, text, 0, 22, 22), 10), single[10]));
}

TEST_CASE("LongRoPE: speculative text equals plain text around the original context") {
  AutoregressiveDecoder plain{load_any("phi3-longrope", backend::Cpu{})};
  for (std::size_t size = 2; size <= 18; ++size) {
    for (const int draft_length : {1, 3, 6, 12}) {
      const auto prompt = random_tokens(size, size);
      const Sampling sampling{.max_new_tokens = 30,
                              .temperature = draft_length == 3 ? 0.8f : 0.0f,
                              .seed = size,
                              .ignore_end_tokens = true};
      const auto expected = text_of(plain, prompt, sampling);
      SpeculativeDecoder own{load_any("phi3-longrope", backend::Cpu{}, WeightType::bf16),
                             load_any("phi3-longrope", backend::Cpu{}),
                             {.draft_tokens = draft_length}};
      CAPTURE(size, draft_length);
      REQUIRE(text_of(own, prompt, sampling) == expected);
      SpeculativeDecoder other{load_any("phi3-swa7", backend::Cpu{}),
                               load_any("phi3-longrope", backend::Cpu{}),
                               {.draft_tokens = draft_length}};
      REQUIRE(text_of(other, prompt, sampling) == expected);
    }
  }
}
