// Forward passes with each allocation failing in turn: the sequences are unchanged, and all pages are freed.
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "support/allocations.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Fixture {
  TemporaryFolder folder;
  std::filesystem::path path = write_least_model(folder.path() / "model", 1);
  AnyModel model = load(path, backend::Cpu(2));
  AdapterRef adapter = [this] {
    write_random_adapter(folder.path() / "adapter", Checkpoint(path), {.seed = 1, .rank = 2});
    return load_adapter(folder.path() / "adapter", model);
  }();
  std::vector<Token> text = some_text(2, 150, least_shape.vocab);

  std::span<const Token> part(std::size_t from, std::size_t to) const {
    return std::span(text).subspan(from, to - from);
  }
};

void append(std::vector<float>& all, const Batch& batch) {
  for (int i = 0; i < batch.size(); ++i) {
    if (batch.items()[static_cast<std::size_t>(i)].spec.result != RowResult::logits) continue;
    const auto logits = batch.logits(i);
    all.insert(all.end(), logits.data, logits.data + logits.size());
  }
}

/// Texts that share pages, fork, are truncated and adapted, from their start.
std::vector<float> whole_lives(const Fixture& tiny, const KvPool& pool) {
  std::vector<float> all;
  Batch batch;
  Sequence first(pool), adapted(pool, 0, tiny.adapter);
  batch.add(first, tiny.part(0, 70), {.result = RowResult::logits});
  batch.add(adapted, tiny.part(0, 20), {.result = RowResult::logits, .rows = 2});
  tiny.model.forward(batch);
  append(all, batch);
  Sequence fork = first.fork(), alike(pool);
  alike.adopt(tiny.part(0, 70));
  batch.clear();
  batch.add(first, tiny.part(70, 73), {.result = RowResult::logits, .rows = 2});
  batch.add(fork, tiny.part(80, 82), {.result = RowResult::logits});
  batch.add(alike, tiny.part(static_cast<std::size_t>(alike.length()), 70), {.result = RowResult::logits});
  batch.add(adapted, tiny.part(20, 21));
  tiny.model.forward(batch);
  append(all, batch);
  first.truncate(60);
  batch.clear();
  batch.add(first, tiny.part(60, 64), {.result = RowResult::logits});
  tiny.model.forward(batch);
  append(all, batch);
  return all;
}

}  // namespace

TEST_CASE("for any failing allocation of a text's life, its pages are freed, and the next text has the same bits") {
  const Fixture tiny;
  for (const bool share : {false, true}) {
    const std::size_t memory = std::size_t{1} << 20;
    const std::vector<float> expected = whole_lives(tiny, tiny.model.pool({.share_prefixes = share}));
    int wrong = 0, held = 0;
    const long count = fail_each_allocation([&](Failure& failure) {
      const KvPool pool = tiny.model.pool({.memory = memory, .share_prefixes = share});
      std::vector<float> found;
      if (failure.spares([&] { found = whole_lives(tiny, pool); })) wrong += found != expected;
      held += pool.used() != pool.idle();
      wrong += whole_lives(tiny, pool) != expected;
      held += pool.used() != pool.idle();
    });
    CHECK(wrong == 0);
    CHECK(held == 0);
    CHECK(count > 50);
  }
}

TEST_CASE("a forward pass with a failing allocation leaves every sequence and the batch unchanged") {
  const Fixture tiny;
  const auto fill = [&](Batch& batch, Sequence& one, Sequence& other, Sequence& adapted) {
    batch.clear();
    batch.add(one, tiny.part(70, 135), {.result = RowResult::logits, .rows = 3});
    batch.add(other, tiny.part(100, 101), {.result = RowResult::logits});
    batch.add(adapted, tiny.part(20, 90), {.result = RowResult::logits});
  };
  const auto next = [&](Failure* failure) {
    const KvPool pool = tiny.model.pool({.memory = std::size_t{1} << 20, .share_prefixes = true});
    Sequence one(pool), adapted(pool, 0, tiny.adapter);
    Batch batch;
    batch.add(one, tiny.part(0, 70));
    batch.add(adapted, tiny.part(0, 20));
    tiny.model.forward(batch);
    Sequence other = one.fork();
    bool done = false;
    if (failure != nullptr) {
      done = failure->spares([&] {
        fill(batch, one, other, adapted);
        tiny.model.forward(batch);
      });
      if (!done) {
        CHECK(one.length() == 70);
        CHECK(other.length() == 70);
        CHECK(adapted.length() == 20);
      }
    }
    if (!done) {
      fill(batch, one, other, adapted);
      tiny.model.forward(batch);
    }
    std::vector<float> all;
    append(all, batch);
    return all;
  };
  const std::vector<float> expected = next(nullptr);
  int wrong = 0;
  const long count = fail_each_allocation([&](Failure& failure) { wrong += next(&failure) != expected; });
  CHECK(wrong == 0);
  CHECK(count > 20);
}

TEST_CASE("a session continues after any failing allocation") {
  const Fixture tiny;
  const auto row_of = [](const View<const float, 2>& logits) {
    return std::vector<float>(logits.data, logits.data + logits.size());
  };
  Session<AnyModel> whole(tiny.model);
  whole.forward(tiny.part(0, 80), 0);
  const std::vector<float> expected = row_of(whole.forward(tiny.part(80, 85), 2));
  int wrong = 0;
  fail_each_allocation([&](Failure& failure) {
    std::optional<Session<AnyModel>> session;
    std::vector<float> found;
    const auto go_on = [&] {
      if (!session) session.emplace(tiny.model);
      const auto length = static_cast<std::size_t>(session->length());
      if (length < 80) session->forward(tiny.part(length, 80), 0);
      if (length > 80) session->truncate(80);
      found = row_of(session->forward(tiny.part(80, 85), 2));
    };
    if (!failure.spares(go_on)) go_on();
    wrong += found != expected;
  });
  CHECK(wrong == 0);
}
