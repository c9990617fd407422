// Batches: the logits of a sequence have the same bits as alone, for any other sequences in a step, any truncation,
// fork, rollback or recomputation, and any location of its pages.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/batch_fixtures.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The logits after each token of a sequence that grows token by token, alone.
std::vector<std::vector<float>> logits_alone(const AnyModel& model, const std::vector<Token>& text) {
  Session session(model);
  std::vector<std::vector<float>> rows;
  for (const Token token : text) {
    const auto logits = session.forward({&token, 1}, 1);
    rows.emplace_back(logits.data, logits.data + logits.size());
  }
  return rows;
}

bool same_bits(const float* row, const std::vector<float>& expected) {
  return std::memcmp(row, expected.data(), expected.size() * sizeof(float)) == 0;
}

/// In a pool of the format, alone.
std::vector<std::vector<float>> logits_in(const AnyModel& model, KvFormat format, const std::vector<Token>& text) {
  Sequence sequence(model.pool({.format = format}));
  std::vector<std::vector<float>> rows;
  Batch batch;
  for (const Token token : text) {
    batch.clear();
    batch.add(sequence, {&token, 1}, {.result = RowResult::logits});
    model.forward(batch);
    const auto logits = batch.logits(0);
    rows.emplace_back(logits.data, logits.data + logits.size());
  }
  return rows;
}

/// A growing sequence: its whole text, the expected results of its rows, and a sequence that has processed a part.
struct Line {
  std::vector<Token> text;
  std::vector<std::vector<float>> expected;
  Sequence sequence;
};

/// A random schedule of rounds over some texts, half of which have a common prefix. Returns the number of compared
/// rows; `wrong` counts different ones.
int run_schedule(const AnyModel& model, const KvPool& pool, std::uint64_t seed, int lines_count, int length,
                 int first_most, int& wrong) {
  std::uint64_t salt = 0;
  const auto pick = [&](int n) {
    return static_cast<int>(mix(seed * 104729 + ++salt) % static_cast<std::uint64_t>(n));
  };
  std::vector<Line> lines;
  for (int i = 0; i < lines_count; ++i) {
    std::vector<Token> text = some_text(seed + static_cast<std::uint64_t>(i) * 31, length, model.info().vocab);
    if (i % 2 == 1) std::copy_n(lines[0].text.begin(), length / 2, text.begin());
    auto expected = logits_alone(model, text);
    lines.push_back({std::move(text), std::move(expected), Sequence(pool)});
  }
  int compared = 0;
  Batch batch;
  for (int round = 0; round < 24; ++round) {
    batch.clear();
    std::vector<std::pair<Line*, int>> added;  // with the position of its first result
    for (std::size_t i = 0; i < lines.size();
         ++i) {  // a text is truncated, or another one with the same prefix continues from it
      Line& line = lines[i];
      const int at = line.sequence.length();
      if (pick(8) == 0) line.sequence.truncate(at - pick(std::min(at, 20) + 1));
      Line& other = lines[static_cast<std::size_t>(pick(lines_count))];
      const int common = std::min(line.sequence.length(), length / 2);
      const bool alike = std::equal(other.text.begin(), other.text.begin() + common, line.text.begin());
      if (&other == &line || !alike || common == 0 || pick(4) != 0) continue;
      other.sequence = line.sequence.fork();
      other.sequence.truncate(common);
    }
    for (Line& line : lines) {
      const int at = line.sequence.length();
      if (pick(4) == 0) continue;
      const int most = at == 0 ? first_most : 90;
      const int count = std::min({1 + (pick(3) == 0 ? pick(most) : pick(3)), most, length - at});
      if (count <= 0) continue;
      const int rows = pick(3) == 0 ? 0 : 1 + pick(count);
      batch.add(line.sequence,
                std::span(line.text).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
                {.result = rows == 0 ? RowResult::nothing : RowResult::logits, .rows = rows});
      added.emplace_back(&line, at + count - rows);
    }
    if (batch.size() == 0) continue;
    model.forward(batch);
    for (int i = 0; i < batch.size(); ++i) {
      const Batch::Item& item = batch.items()[static_cast<std::size_t>(i)];
      if (item.spec.result != RowResult::logits) continue;
      const auto& [line, first] = added[static_cast<std::size_t>(i)];
      for (int r = 0; r < item.spec.rows; ++r, ++compared)
        wrong += !same_bits(batch.logits(i).row(r), line->expected[static_cast<std::size_t>(first + r)]);
    }
  }
  return compared;
}

}  // namespace

TEMPLATE_TEST_CASE("a sequence's logits are the same in any batch, truncation, fork and page", "", backend::Reference,
                   backend::Cpu) {
  const bool slow = std::string(TestType::name) == "reference";
  int compared = 0;
  for (const char* name : batch_fixtures) {
    const AnyModel model = load(fixture(text("models/", name)), TestType{});
    const bool longrope = std::string(name) == "phi3-longrope";
    const int length = std::min(slow ? 60 : 150, model.info().context);
    for (std::uint64_t seed = 1; seed <= (slow ? 1u : 3u); ++seed) {
      int wrong = 0;
      const int lines = seed == 3 ? 40 : 2 + static_cast<int>(mix(seed) % 7);
      // A text that begins beyond LongRoPE's original context has different logits: see Planner.
      compared += run_schedule(model, model.pool(), seed, lines, length, longrope ? 9 : 70, wrong);
      CAPTURE(name, seed, lines);
      REQUIRE(wrong == 0);
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("four-bit and 16-bit models, one to three threads: the same bits in any batch") {
  for (const char* folder : {"target", "target-int4", "draft-int4"}) {
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 3}) {
      const AnyModel model = load(demo_pair(folder), backend::Cpu(threads));
      int wrong = 0;
      CHECK(run_schedule(model, model.pool(), 5, 5, 100, 70, wrong) > 20);
      CAPTURE(folder, threads);
      CHECK(wrong == 0);
      const auto rows = logits_alone(model, some_text(3, 20, model.info().vocab));
      if (first.empty()) first = rows;
      CHECK(rows == first);
    }
  }
}

TEMPLATE_TEST_CASE("in every format of the cache: the same bits in any batch, truncation, fork and page", "",
                   backend::Reference, backend::Cpu) {
  const bool slow = std::string(TestType::name) == "reference";
  for (const char* name : {"llama3-gqa-scaled-tied", "mistral-swa8", "qwen3-qknorm-headdim", "phi-partial",
                           "mpt-alibi-4h", "gpt2", "qwen35-text", "falcon-h1", "gpt-oss-trunc", "gemma3n"}) {
    for (const KvFormat format : kv_formats) {
      const AnyModel model = load(fixture(text("models/", name)), TestType{}, {.cache_format = format});
      int wrong = 0;
      CHECK(run_schedule(model, model.pool(), 4, 5, std::min(slow ? 60 : 150, model.info().context), 70, wrong) > 20);
      CAPTURE(name, std::string(name_of(format)));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("sequences of all formats can share a batch, with the same results as alone") {
  const AnyModel model = load(fixture("models/mistral-swa8"), backend::Cpu{2});
  const auto text = some_text(6, std::min(100, model.info().context), model.info().vocab);
  std::vector<Sequence> sequences;
  for (const KvFormat format : kv_formats) sequences.emplace_back(model.pool({.format = format}));
  Batch batch;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const bool asks = i != 1;
    batch.add(sequences[i], text, {.result = asks ? RowResult::logits : RowResult::nothing, .rows = asks ? 9 : 0});
  }
  model.forward(batch);
  std::vector<std::vector<float>> last;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    CHECK(sequences[i].length() == static_cast<int>(text.size()));
    if (i == 1) continue;
    const auto expected = logits_in(model, kv_formats[i], text);
    for (int r = 0; r < 9; ++r)
      CHECK(
          same_bits(batch.logits(static_cast<int>(i)).row(r), expected[text.size() - 9 + static_cast<std::size_t>(r)]));
    last.push_back(expected.back());
  }
  CHECK(last[0] != last[1]);
  CHECK(last[1] != last[2]);
}

TEST_CASE("a format has the stated bytes, and its error in the logits is within its bound") {
  const AnyModel model = load(demo_pair("target"), backend::Cpu{2});
  const auto text = some_text(7, 100, model.info().vocab);
  const auto exact = logits_in(model, KvFormat::f32, text);
  const std::size_t bytes = model.pool().bytes_of(1);
  CHECK(model.pool({.format = KvFormat::bf16}).bytes_of(1) == bytes / 2);
  CHECK(model.pool({.format = KvFormat::f16}).bytes_of(1) == bytes / 2);
  const std::size_t codes = model.pool({.format = KvFormat::int8}).bytes_of(1);
  CHECK((codes > bytes / 4 && codes < bytes / 3));
  const auto loss = [&](KvFormat format) {  // against the spread of all logits
    const auto found = logits_in(model, format, text);
    double squares = 0, differences = 0;
    for (std::size_t r = 0; r < text.size(); ++r) {
      for (std::size_t v = 0; v < exact[r].size(); ++v) {
        squares += double{exact[r][v]} * double{exact[r][v]};
        const double difference = double{found[r][v]} - double{exact[r][v]};
        differences += difference * difference;
      }
    }
    return std::sqrt(differences / squares);
  };
  const double f16 = loss(KvFormat::f16), bf16 = loss(KvFormat::bf16), int8 = loss(KvFormat::int8);
  CAPTURE(f16, bf16, int8);
  // A number loses 2^-12, 2^-9 and 1 / 350 of itself or of its row's largest, at most and on average; sums lose less.
  CHECK((f16 > 0 && f16 < 0x1p-11));
  CHECK((bf16 > f16 && bf16 < 0x1p-8));
  CHECK((int8 > f16 && int8 < 0.01));
}

TEST_CASE("a fork shares pages, and the first write to a page copies it") {
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Cpu{1});
  const KvPool pool = model.pool();
  const int length = std::min(40, model.info().context);
  const auto text = some_text(1, length, model.info().vocab);
  const auto expected = logits_alone(model, text);
  Sequence first(pool);
  Batch batch;
  batch.add(first, std::span(text).first(30));
  model.forward(batch);
  const std::size_t page = pool.used();
  Sequence second = first.fork();
  CHECK(pool.used() == page);
  batch.clear();
  batch.add(second, std::vector<Token>{text[0], text[0]});
  model.forward(batch);
  CHECK(pool.used() == 2 * page);  // the second one has a separate page now
  batch.clear();
  batch.add(first, std::span(text).subspan(30), {.result = RowResult::logits, .rows = length - 30});
  model.forward(batch);
  for (int r = 30; r < length; ++r)
    CHECK(same_bits(batch.logits(0).row(r - 30), expected[static_cast<std::size_t>(r)]));
  second = Sequence(pool);
  CHECK(pool.used() == page);
}

TEST_CASE("the test detects a shared page that is written without a copy") {
  // A wrong pool: the fork's page is the same memory.
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Cpu{1});
  const auto text = some_text(1, 40, model.info().vocab);
  const auto expected = logits_alone(model, text);
  Sequence first = model.sequence();
  Batch batch;
  batch.add(first, std::span(text).first(30));
  model.forward(batch);
  Sequence second = first.fork();
  auto& entry = detail::paged(second).tables[0][0];
  entry = KvPageRef(new KvPage{entry->memory});  // not counted as shared
  second.truncate(10);
  batch.clear();
  batch.add(second, std::vector<Token>(15, text[0]));
  model.forward(batch);
  batch.clear();
  batch.add(first, std::span(text).subspan(30, 1), {.result = RowResult::logits});
  model.forward(batch);
  CHECK_FALSE(same_bits(batch.logits(0).row(0), expected[30]));
}

TEST_CASE("an invalid batch is rejected, and no sequence changes") {
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Reference{});
  const AnyModel other = load(fixture("models/llama-mha3h"), backend::Reference{});
  Sequence good = model.sequence(), foreign = other.sequence();
  const std::vector<Token> tokens{1, 2, 3};
  Batch batch;
  batch.add(good, tokens);
  model.forward(batch);
  const auto refused = [&](auto&& add) {
    batch.clear();
    Sequence innocent = good.fork();
    batch.add(innocent, tokens, {.result = RowResult::logits});
    add();
    std::string id = error_id([&] { model.forward(batch); });
    CHECK(good.length() == 3);
    CHECK(innocent.length() == 3);
    CHECK(foreign.length() == 0);
    return id;
  };
  const std::vector<Token> beyond{1, model.info().vocab}, negative{-1};
  const std::vector<Token> many(static_cast<std::size_t>(model.info().context), 1);
  CHECK(refused([&] { batch.add(good, beyond); }) == "batch.token-out-of-range");
  CHECK(refused([&] { batch.add(good, negative); }) == "batch.token-out-of-range");
  CHECK(refused([&] { batch.add(good, many); }) == "batch.context-full");
  CHECK(refused([&] { batch.add(foreign, tokens); }) == "batch.foreign-sequence");
  CHECK(refused([&] {
          batch.add(good, tokens);
          batch.add(good, tokens);
        }) == "batch.same-sequence");
  CHECK(refused([&] { batch.add(good, tokens, {.result = RowResult::logits, .rows = 4}); }) == "batch.rows");
  CHECK(refused([&] { batch.add(good, tokens, {.result = RowResult::hidden, .rows = -1}); }) == "batch.rows");
  CHECK(refused([&] { batch.add(good, tokens, {.result = RowResult::hidden, .rows = 1 << 30}); }) == "batch.rows");
  CHECK(refused([&] { batch.add(good, tokens, {.result = RowResult::choice}); }) == "batch.choice");
  CHECK(refused([&] { batch.add(good, tokens, {.result = RowResult::logits, .chain = 2}); }) == "batch.steps");
  CHECK(refused([&] { batch.add(good, tokens, {}, std::vector<int>{-1, 1, 1}); }) == "batch.bad-parent");
  CHECK(refused([&] { batch.add(good, tokens, {}, std::vector<int>{-1, 0}); }) == "batch.bad-parent");
  CHECK(refused([&] { batch.add(good, tokens, {}, std::vector<int>{-1, 0, 0}); }) == "batch.tree");
  batch.clear();
  batch.add(good, tokens, {}, std::vector<int>{-1, 0, 1});
  CHECK(error_id([&] { model.forward(batch); }) == "no error");
}

TEST_CASE("a full pool rejects an allocation, and existing sequences continue") {
  const AnyModel model = load(fixture("models/mistral-long"), backend::Cpu{1});
  const std::size_t page = model.pool().bytes_of(1);
  const KvPool pool = model.pool({.memory = 3 * page});
  const auto text = some_text(2, 300, model.info().vocab);
  const auto expected = logits_alone(model, text);
  Sequence first(pool), second(pool);
  Batch batch;
  batch.add(first, std::span(text).first(100));
  model.forward(batch);
  batch.clear();
  batch.add(first, std::span(text).subspan(100, 1), {.result = RowResult::logits});
  batch.add(second, std::span(text).first(80));
  CHECK(error_id([&] { model.forward(batch); }) == "cache.full");
  CHECK(first.length() == 100);
  CHECK(second.length() == 0);
  CHECK(pool.used() <= 3 * page);
  batch.clear();
  batch.add(first, std::span(text).subspan(100, 1), {.result = RowResult::logits});
  model.forward(batch);
  CHECK(same_bits(batch.logits(0).row(0), expected[100]));
  first.truncate(0);
  CHECK(pool.used() == 0);
  batch.clear();
  batch.add(second, std::span(text).first(150), {.result = RowResult::logits});
  model.forward(batch);
  CHECK(same_bits(batch.logits(0).row(0), expected[149]));
}

TEST_CASE("hidden states are the inputs of the head") {
  // The head of a model without a bias is a product: logits follow from hidden states, here by plain loops.
  const auto folder = fixture("models/llama-mha3h");
  const AnyModel model = load(folder, backend::Reference{});
  const auto text = some_text(4, 12, model.info().vocab);
  Sequence one = model.sequence(), two = model.sequence();
  Batch batch;
  batch.add(one, text, {.result = RowResult::hidden, .rows = 12});
  batch.add(two, text, {.result = RowResult::logits, .rows = 12});
  model.forward(batch);
  const Checkpoint checkpoint(folder);
  const auto hidden = batch.hidden(0);
  const auto logits = batch.logits(1);
  REQUIRE(hidden.extent(1) == checkpoint.config().hidden);
  const auto& head = checkpoint.tensor("lm_head.weight", {checkpoint.config().vocab, checkpoint.config().hidden});
  std::vector<float> weight(static_cast<std::size_t>(head.elements()));
  convert(head, 0, head.elements(), weight.data());
  for (int r = 0; r < 12; ++r) {
    for (int v = 0; v < checkpoint.config().vocab; ++v) {
      double sum = 0;
      for (int i = 0; i < checkpoint.config().hidden; ++i)
        sum += double{hidden(r, i)} * double{weight[static_cast<std::size_t>(v * checkpoint.config().hidden + i)]};
      REQUIRE(logits(r, v) == Approx(sum).margin(1e-4));
    }
  }
}
