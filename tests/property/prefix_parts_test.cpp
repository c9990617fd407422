// Texts share pages up to any position of a page.
#include <algorithm>
#include <catch2/catch.hpp>

#include "support/shared_pages.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("a text reuses the beginning of a page, full or partial") {
  SharedPrefix<> all("llama-mha3h", 220);
  const auto run = [&](const Text& text, int length) {
    Sequence sequence(all.pool);
    CHECK(all.append(sequence, text, length));
    sequence.share_last_page();
    return sequence.adopted();
  };
  CHECK(run(all.whole, 220) == 0);
  CHECK(all.pool.prefix_stats().pages == 4);
  CHECK(run(all.whole, 220) == 219);  // except the row with a requested result
  CHECK(all.pool.prefix_stats().hit_positions() == 219);
  CHECK(all.pool.prefix_stats().pages == 4);
  CHECK(run(all.whole, 205) == 204);
  CHECK(run(all.whole, 200) == 192);  // to compute 7 positions takes no longer than to copy their page
  CHECK(all.pool.prefix_stats().pages == 4);

  Text other = all.other(2);  // equal up to a position in the third page
  std::copy_n(all.whole.tokens.begin(), 150, other.tokens.begin());
  other = Text(all.model, other.tokens);
  CHECK(run(other, 160) == 150);
  CHECK(all.pool.prefix_stats().pages == 5);
  CHECK(run(other, 180) == 160);              // of the two candidates, the one with more
  CHECK(all.pool.prefix_stats().pages == 5);  // the longer page replaces the shorter one
  CHECK(run(other, 220) == 180);
  CHECK(all.pool.prefix_stats().pages == 6);  // the full page replaces it too
  CHECK(run(all.whole, 220) == 219);
  CHECK(all.pool.used() == all.pool.idle());
}

TEST_CASE("to write to a page whose beginning is shared copies it, or takes it from the index without memory") {
  for (const std::size_t pages : {5, 4}) {
    SharedPrefix<> all("llama-mha3h", 230, pages);
    Sequence first(all.pool);
    CHECK(all.append(first, all.whole, 220));
    first.share_last_page();
    CHECK(all.append(first, all.whole, 1));
    CHECK(all.pool.prefix_stats().pages == (pages == 5 ? 4 : 3));
    first.truncate(0);
    Sequence second(all.pool);
    CHECK(all.append(second, all.whole, 230));
    CHECK(second.adopted() == (pages == 5 ? 220 : 192));
  }
}
