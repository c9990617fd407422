// A saved and loaded sequence continues with the same bits; any other bytes are rejected.
#include <catch2/catch.hpp>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<float> append(const AnyModel& model, Sequence& sequence, std::span<const Token> tokens) {
  Batch batch;
  batch.add(sequence, tokens, {.result = RowResult::logits});
  model.forward(batch);
  const auto row = batch.logits(0);
  return {row.data, row.data + row.size()};
}

std::string saved(const Sequence& sequence) {
  std::ostringstream out;
  sequence.save(out);
  return out.str();
}

Sequence loaded(const std::string& bytes, const KvPool& pool) {
  std::istringstream in(bytes);
  return Sequence::load(in, pool);
}

}  // namespace

TEMPLATE_TEST_CASE("a saved sequence continues in another model of the same weights, with the same bits", "",
                   backend::Reference, backend::Cpu) {
  for (const auto& [name, length] : {std::pair{"llama-mha3h", 40},
                                     {"mistral-long", 700},
                                     {"phi3-longrope", 25},
                                     {"gpt2", 64},
                                     {"gemma3-4b", 90},
                                     {"ministral3", 60},
                                     {"qwen3moe", 90},
                                     {"lfm2", 90},
                                     {"lfm2-conv4-bias", 67},
                                     {"lfm2moe", 90},
                                     {"qwen3next", 80},
                                     {"granitehybrid-groups", 70},
                                     {"falcon-h1", 75},
                                     {"nemotron-h-moe", 90},
                                     {"gpt-oss-trunc", 70},
                                     {"gemma3n", 80},
                                     {"gemma4-e2b", 90},
                                     {"gemma4-moe", 67},
                                     {"deepseek-v3", 90}}) {
    if (length == 700 && std::string(TestType::name) == "reference") continue;
    const auto folder = fixture(text("models/", name));
    const AnyModel model = load(folder, TestType{}), again = load(folder, TestType{});
    const auto tokens = some_text(0, length, model.info().vocab);
    Sequence whole = model.sequence();
    append(model, whole, std::span(tokens).first(9));
    append(model, whole, std::span(tokens).subspan(9, static_cast<std::size_t>(length) - 12));
    const std::string bytes = saved(whole);
    Sequence other = loaded(bytes, again.pool());
    CAPTURE(name);
    REQUIRE(std::equal(other.tokens().begin(), other.tokens().end(), whole.tokens().begin(), whole.tokens().end()));
    for (int i = length - 3; i < length; ++i) {
      const auto next = std::span(tokens).subspan(static_cast<std::size_t>(i), 1);
      REQUIRE(append(again, other, next) == append(model, whole, next));
    }
    CHECK(saved(loaded(bytes, again.pool())) == bytes);
    CHECK(loaded(saved(model.sequence()), again.pool()).length() == 0);
  }
}

TEST_CASE("a saved sequence of other weights, another backend or another type of weights is rejected") {
  const auto folder = fixture("models/llama-mha3h");
  const AnyModel model = load(folder, backend::Cpu{1});
  Sequence sequence = model.sequence();
  append(model, sequence, std::vector<Token>{1, 2, 3});
  const std::string bytes = saved(sequence);
  const auto refusal = [&](const AnyModel& other) { return error_id([&] { loaded(bytes, other.pool()); }); };
  CHECK(refusal(model) == "no error");
  CHECK(refusal(load(folder, backend::Reference{})) == "sequence.other-model");
  CHECK(refusal(load(folder, backend::Cpu{1}, {.weights = WeightType::bf16})) == "sequence.other-model");
  CHECK(refusal(load(fixture("models/llama-bias"), backend::Cpu{1})) == "sequence.other-model");
  CHECK(refusal(load(folder, backend::Cpu{1}, {.context = 2})) == "sequence.bad-file");
}

TEST_CASE("a saved sequence continues in a pool of its format, and every other format is rejected") {
  const auto folder = fixture("models/llama-mha3h");
  const AnyModel model = load(folder, backend::Cpu{1});
  const std::vector<Token> next{7};
  for (const KvFormat format : kv_formats) {
    Sequence sequence(model.pool({.format = format}));
    append(model, sequence, std::vector<Token>{1, 2, 3});
    const std::string bytes = saved(sequence);
    Sequence other = loaded(bytes, model.pool({.format = format}));
    CHECK(append(model, other, next) == append(model, sequence, next));
    for (const KvFormat another : kv_formats) {
      const std::string id = error_id([&] { loaded(bytes, model.pool({.format = another})); });
      CHECK(id == (another == format ? "no error" : "sequence.other-format"));
    }
  }
}

TEST_CASE("truncated or modified bytes are rejected, and every page is freed") {
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Cpu{1});
  const KvPool pool = model.pool();
  std::string bytes;
  {
    Sequence sequence(pool);
    append(model, sequence, some_text(0, 40, model.info().vocab));
    bytes = saved(sequence);
  }
  REQUIRE(pool.used() == 0);
  for (std::size_t size = 0; size < bytes.size(); size += size < 300 ? 1 : 997) {
    CAPTURE(size);
    REQUIRE(error_id([&] { loaded(bytes.substr(0, size), pool); }) == "sequence.bad-file");
  }
  for (std::size_t at = 0; at < bytes.size(); at += at < 300 ? 1 : 991) {
    std::string altered = bytes;
    altered[at] = static_cast<char>(altered[at] ^ 0x41);
    const std::string id = error_id([&] { loaded(altered, pool); });
    CAPTURE(at, id);
    REQUIRE((id == "sequence.bad-file" || id == "sequence.other-model" || id == "sequence.other-format" ||
             id == "sequence.other-adapter"));
  }
  CHECK(pool.used() == 0);
  std::ostringstream full;
  full.setstate(std::ios::badbit);
  CHECK(error_id([&] { loaded(bytes, pool).save(full); }) == "sequence.unwritable");
}
