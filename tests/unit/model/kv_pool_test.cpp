// PagePool and Batch without a model: pages without memory, and results that were not requested.
#include <catch2/catch.hpp>
#include <memory>
#include <new>
#include <sstream>
#include <vector>

#include "slm/model/page_pool.hpp"
#include "support/allocations.hpp"
#include "support/errors.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct HostMemory final : KvMemory {
  std::vector<std::unique_ptr<std::byte[]>> slabs;

  std::byte* allocate(const KvPageShape& shape, std::size_t count) override {
    slabs.push_back(std::make_unique<std::byte[]>(shape.bytes() * count));
    return slabs.back().get();
  }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void read(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, const std::byte*, std::size_t) override {}
};

PagePool small_pool(bool share_prefixes) {
  ModelConfig shape;
  shape.layers = 2;
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = 16;
  return {KvLayout(shape, ModelSettings{}, KvFormat::f32),
          std::make_unique<HostMemory>(),
          {.memory = std::size_t{1} << 20, .share_prefixes = share_prefixes}};
}

}  // namespace

TEST_CASE("a page is freed once, for any failing allocation of take() and copy()") {
  for (const bool copies : {false, true}) {
    for (const bool warm : {false, true}) {
      const long count = fail_each_allocation([&](Failure& failure) {
        const PagePool pool = small_pool(copies);
        if (warm) pool.take(0);
        const KvPageRef source = copies ? pool.take(0) : nullptr;
        const std::size_t before = pool.used();
        failure.spares([&] { const KvPageRef page = copies ? pool.copy(0, *source) : pool.take(0); });
        CHECK(pool.used() == before);
        const KvPageRef one = pool.take(0), other = pool.take(0);
        CHECK(one->memory != other->memory);
      });
      CHECK(count > 1);
    }
  }
}

TEST_CASE("the budget counts held pages, through copies of a reference") {
  const PagePool pool = small_pool(false);
  std::vector<KvPageRef> pages;
  CHECK(error_id([&] {
          for (;;) pages.push_back(pool.take(0));
        }) == "cache.full");
  const KvPageRef kept = pages.front();
  pages.clear();
  CHECK(pool.used() == pool.layout().page_bytes(0));
  CHECK(kept.use_count() == 1);
}

TEST_CASE("results are read by the requested kind, after a forward pass") {
  const ToyModel model({.vocab = 7, .context = 32});
  Sequence first = model.sequence(), second = model.sequence(), third = model.sequence();
  const std::vector<Token> tokens{1, 2};
  Batch batch;
  CHECK(error_id([&] { batch.logits(0); }) == "batch.answer");
  const int logits = batch.add(first, tokens, {.result = RowResult::logits, .rows = 2});
  const int hidden = batch.add(second, tokens, {.result = RowResult::hidden});
  const int nothing = batch.add(third, tokens);
  CHECK(error_id([&] { batch.logits(logits); }) == "batch.answer");  // before the forward pass
  CHECK(error_id([&] { batch.hidden(hidden); }) == "batch.answer");
  model.forward(batch);
  CHECK(batch.logits(logits).extent(0) == 2);
  CHECK(batch.logits(logits).extent(1) == 7);
  CHECK(batch.hidden(hidden).extent(0) == 1);
  for (const int other : {hidden, nothing, -1, 3, 7}) CHECK(error_id([&] { batch.logits(other); }) == "batch.answer");
  for (const int other : {logits, nothing, -1, 3, 7}) CHECK(error_id([&] { batch.hidden(other); }) == "batch.answer");
  for (const int other : {logits, hidden, nothing, -1, 3}) {
    CHECK(error_id([&] { batch.choices(other); }) == "batch.answer");
  }
  batch.clear();
  CHECK(error_id([&] { batch.logits(logits); }) == "batch.answer");
}

TEST_CASE("a sequence without a KV cache is neither saved nor loaded") {
  const ToyModel model({.vocab = 7, .context = 32});
  std::stringstream file;
  CHECK(error_id([&] { model.sequence().save(file); }) == "sequence.no-cache");
  CHECK(error_id([&] { Sequence::load(file, model.pool()); }) == "sequence.no-cache");
}
