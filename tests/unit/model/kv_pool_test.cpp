// The pages of a KvPool where memory runs out.
#include <catch2/catch.hpp>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "slm/model/kv_pool.hpp"
#include "support/allocations.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Pages in the processor's memory.
class PlainMemory final : public KvMemory {
 public:
  std::byte* allocate(const KvPageShape& shape, std::size_t count) override {
    slabs_.emplace_back(shape.bytes() * count);
    return slabs_.back().data();
  }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void read(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, const std::byte*, std::size_t) override {}

 private:
  std::vector<std::vector<std::byte>> slabs_;
};

}  // namespace

TEST_CASE("a page whose handle finds no memory is returned to its pool once") {
  const ModelConfig shape{.layers = 2, .hidden = 32, .heads = 2, .kv_heads = 2, .head_dim = 16};
  bool complete = false;
  for (long n = 1; !complete && n < 100; ++n) {
    const KvPool pool{KvLayout(shape, {}, KvFormat::f32), std::make_unique<PlainMemory>()};
    KvPageRef kept = pool.take(0), page;
    const std::size_t before = pool.used();
    try {
      fail_at = n;
      page = pool.take(0);
      complete = fail_at > 0;
    } catch (const std::bad_alloc&) {
    }
    fail_at = 0;
    if (complete) break;
    CHECK(pool.used() == before);
    const KvPageRef first = pool.take(0), second = pool.take(0);
    CHECK(first->memory != second->memory);
    CHECK(first->memory != kept->memory);
    CHECK(second->memory != kept->memory);
  }
  CHECK(complete);
}
