// Texts with a common prefix share pages. A reused page has the bits of a computed one, for any concurrent runs, forks,
// rollbacks, rejections and memory pressure. The index never causes a rejection.
#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/errors.hpp"
#include "support/in_turn.hpp"
#include "support/shared_pages.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Two pools of the same size, one of them sharing, receive the same operations.
template <class B>
struct Schedule {
  struct Line {
    std::size_t text;
    Sequence shared, plain;
  };

  Schedule(const char* name, int length, int texts, std::size_t pages, std::uint64_t seed)
      : sharing(name, length, pages), plain(sharing.model.pool({.memory = pages * sharing.page})), seed_(seed) {
    for (int i = 0; i < texts; ++i) {
      std::vector<Token> tokens = some_text(seed + static_cast<std::uint64_t>(i), length, sharing.model.info().vocab);
      if (i > 0) {
        const auto& before = all[static_cast<std::size_t>(pick(i))].tokens;
        std::copy_n(before.begin(), pick(length), tokens.begin());
      }
      all.emplace_back(sharing.model, std::move(tokens));
    }
    for (int i = 0; i < 4; ++i) lines.push_back({static_cast<std::size_t>(pick(texts)), fresh(true), fresh(false)});
  }

  int pick(int n) { return static_cast<int>(mix(seed_ * 104729 + ++salt_) % static_cast<std::uint64_t>(n)); }
  Sequence fresh(bool shared) { return Sequence(shared ? sharing.pool : plain); }

  /// A text ends and another starts, is rolled back, or is forked.
  void disturb(Line& line) {
    const int at = line.shared.length();
    const int what = pick(10);
    if (what <= 2 && pick(2) == 0) line.shared.share_last_page();
    if (what == 0 || at == static_cast<int>(all[0].tokens.size())) {
      line = {static_cast<std::size_t>(pick(static_cast<int>(all.size()))), fresh(true), fresh(false)};
    } else if (what == 1) {
      const int length = pick(2) == 0 ? pick(at + 1) : std::max(0, at - pick(5));
      line.shared.truncate(length);
      line.plain.truncate(length);
    } else if (what == 2) {
      const Line& other = lines[static_cast<std::size_t>(pick(static_cast<int>(lines.size())))];
      if (&other != &line) line = {other.text, other.shared.fork(), other.plain.fork()};
    }
  }

  void round() {
    for (Line& line : lines) disturb(line);
    Batch batches[2];
    std::vector<std::pair<Line*, int>> added;  // with its length before
    for (Line& line : lines) {
      const std::vector<Token>& tokens = all[line.text].tokens;
      const int at = line.shared.length();
      const int count = std::min(pick(2) == 0 ? 1 + pick(3) : 1 + pick(static_cast<int>(tokens.size())),
                                 static_cast<int>(tokens.size()) - at);
      if (pick(5) == 0 || count == 0) continue;
      const int rows = pick(3) == 0 ? 0 : 1 + pick(pick(2) == 0 ? std::min(count, 2) : count);
      const ResultSpec ask{.result = rows == 0 ? RowResult::nothing : RowResult::logits, .rows = rows};
      const auto more = std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
      batches[0].add(line.shared, more, ask);
      batches[1].add(line.plain, more, ask);
      added.emplace_back(&line, at);
    }
    const std::string shared = error_id([&] { sharing.model.forward(batches[0]); });
    const std::string alone = error_id([&] { sharing.model.forward(batches[1]); });
    refused += shared != "no error";
    if (!windows) {  // with windows, the pages of a text depend on its history
      CHECK((shared == alone || shared == "no error"));
      CHECK(sharing.pool.used() - sharing.pool.idle() <= plain.used());
    }
    for (std::size_t i = 0; i < added.size(); ++i) {
      const auto& [line, at] = added[i];
      const Batch::Item& item = batches[0].items()[i];
      if (shared == "no error" && item.spec.result == RowResult::logits) {
        const int first = at + static_cast<int>(item.count) - item.spec.rows;
        for (int row = 0; row < item.spec.rows; ++row, ++compared)
          wrong += !all[line->text].gives(first + row, batches[0].logits(static_cast<int>(i)).row(row));
      }
      if (shared != alone) (shared == "no error" ? line->shared : line->plain).truncate(at);
      CHECK(line->shared.length() == line->plain.length());
    }
    if (shared != "no error" || alone != "no error") lines[0] = {lines[0].text, fresh(true), fresh(false)};
  }

  SharedPrefix<B> sharing;
  KvPool plain;
  std::vector<Text> all;
  std::vector<Line> lines;
  bool windows = detail::paged(sharing.pool).layout().kinds().size() > 1 ||
                 detail::paged(sharing.pool).layout().kinds()[0].window != 0;
  int compared = 0, wrong = 0, refused = 0;

 private:
  std::uint64_t seed_, salt_ = 0;
};

}  // namespace

TEMPLATE_TEST_CASE("shared pages have the bits of computed ones in any schedule, and cause no rejection", "",
                   backend::Reference, backend::Cpu, backend::Lanes32) {
  const bool cpu = std::string(TestType::name) == "cpu", lanes = std::string(TestType::name) != "reference" && !cpu;
  PrefixStats sum;
  int compared = 0, refused = 0;
  for (const auto& [name, length] : {std::pair{"llama-mha3h", 200},
                                     {"mistral-long", 700},
                                     {"qwen2-long", 500},
                                     {"gemma3-4b", 240},
                                     {"lfm2", 200},
                                     {"qwen3moe", 200},
                                     {"qwen35moe", 200},
                                     {"granitehybrid", 200},
                                     {"gemma4-e2b", 400},
                                     {"gemma3n", 150},
                                     {"glm4-moe-lite", 200}}) {
    if (!cpu && length > 200) continue;
    const std::string family = name;
    // Lanes have no kernels of recurrences, experts and layers of different shapes.
    if (lanes && (family == "lfm2" || family.ends_with("moe") || family == "granitehybrid" || family == "gemma4-e2b" ||
                  family == "gemma3n" || family == "glm4-moe-lite"))
      continue;
    for (const std::size_t pages : lanes ? std::vector<std::size_t>{13} : in_turn<std::size_t>({0, 13, 20})) {
      for (std::uint64_t seed = 1; seed <= (cpu ? 2u : 1u); ++seed) {
        CAPTURE(name, pages, seed);
        Schedule<TestType> schedule(name, cpu ? length : 150, cpu ? 8 : 4, pages, seed);
        for (int round = 0; round < (cpu ? 60 : 8); ++round) schedule.round();
        CHECK(schedule.wrong == 0);
        compared += schedule.compared;
        refused += schedule.refused;
        const PrefixStats stats = schedule.sharing.pool.prefix_stats();
        sum.hits += stats.hits;
        sum.part_positions += stats.part_positions;
        sum.evictions += stats.evictions;
        CHECK((pages > 0 || stats.evictions == 0));
        schedule.lines.clear();
        CHECK(schedule.sharing.pool.used() == schedule.sharing.pool.idle());
        CHECK(schedule.plain.used() == 0);
      }
    }
  }
  CHECK(compared > 80);
  CHECK(sum.hits > 2);
  if (cpu) {
    CHECK(refused > 10);
    CHECK(sum.part_positions > 1000);
    CHECK(sum.evictions > 100);
  }
}

TEST_CASE("a text reuses the full pages of its prefix, except rows with requested results") {
  SharedPrefix<> all("llama-mha3h", 200);
  Sequence first(all.pool);
  CHECK(all.append(first, all.whole, 200));
  CHECK(all.pool.prefix_stats().pages == 3);
  CHECK(all.pool.prefix_stats().misses == 3);
  const std::size_t used = all.pool.used();
  Sequence second(all.pool);
  CHECK(all.append(second, all.whole, 192));  // of the third page the last row has a requested result
  CHECK(all.pool.prefix_stats().hits == 2);
  CHECK(all.pool.prefix_stats().hit_positions() == 191);  // the beginning of the third page too
  CHECK(all.pool.used() == used);                         // which is the same page after it is computed
  Sequence third(all.pool);
  for (const int part : {70, 70, 60}) CHECK(all.append(third, all.whole, part));  // a prompt in chunks
  CHECK(all.pool.prefix_stats().hits == 5);
  Sequence quiet(all.pool);
  Batch batch;
  batch.add(quiet, std::span(all.whole.tokens).first(128));
  all.model.forward(batch);  // nothing is left to compute
  CHECK(quiet.length() == 128);
  CHECK(all.append(quiet, all.whole, 1));
}

TEST_CASE("pages of every format are shared") {
  for (const KvFormat format : kv_formats) {
    CAPTURE(std::string(name_of(format)));
    const AnyModel model = load(fixture("models/mistral-swa8"), backend::Cpu{}, {.cache_format = format});
    const Text whole(model, some_text(1, 200, model.info().vocab));
    const KvPool pool = model.pool({.share_prefixes = true});
    for (int i = 0; i < 2; ++i) {
      Sequence sequence(pool);
      Batch batch;
      batch.add(sequence, whole.tokens, {.result = RowResult::logits});
      model.forward(batch);
      CHECK(whole.gives(199, batch.logits(0).data));
      CHECK(pool.prefix_stats().hits == 3 * i);
    }
  }
}

TEST_CASE("the test detects a page with other contents") {
  SharedPrefix<> all("llama-mha3h", 200);
  Sequence first(all.pool);
  CHECK(all.append(first, all.whole, 200));
  const KvPageRef page = detail::paged(first).tables[0][1];
  std::vector<std::byte> contents(all.page);
  const PagePool& pages = detail::paged(all.pool);
  pages.read(0, *page, contents.data());
  std::reverse(contents.begin(), contents.begin() + 4096);
  pages.write(0, *page, contents.data());
  Sequence second(all.pool);
  CHECK_FALSE(all.append(second, all.whole, 200));
}

TEST_CASE("a page with equal tokens after another page is another page") {
  SharedPrefix<> all("llama-mha3h", 200);
  const Text other = all.other(2);
  std::vector<Token> late = other.tokens;  // the second page is that of the first text, after another first page
  for (std::size_t i = 64; i < 128; ++i) late[i] = all.whole.tokens[i];
  const Text mixed(all.model, late);
  Sequence first(all.pool), second(all.pool), third(all.pool);
  CHECK(all.append(first, all.whole, 200));
  CHECK(all.append(second, other, 200));
  CHECK(all.pool.prefix_stats().hits == 0);
  CHECK(all.append(third, mixed, 200));
  CHECK(all.pool.prefix_stats().hits == 1);
}

TEST_CASE("texts of other tenants and of other adapters share nothing") {
  SharedPrefix<> all("llama-mha3h", 200);
  const auto adapter = [&](std::uint64_t digest) {  // only known to be different
    return std::make_shared<const Adapter>(Adapter{.digest = digest, .model = all.model.info().identity});
  };
  Sequence first(all.pool), tenant(all.pool, 1), adapted(all.pool, 0, adapter(1)), changing(all.pool, 0, adapter(2));
  all.append(first, all.whole, 200);
  all.append(tenant, all.whole, 200);
  all.append(adapted, all.whole, 200);
  CHECK(all.pool.prefix_stats().hits == 0);
  CHECK(all.pool.prefix_stats().pages == 9);
  all.append(changing, all.whole, 100);
  changing.adapt(adapter(3));  // all of it is recomputed
  CHECK(all.append(changing, all.whole, 100));
  CHECK(all.pool.prefix_stats().hits == 0);
  CHECK(all.pool.prefix_stats().pages == 13);
  Sequence again(all.pool, 0, adapter(1));
  all.append(again, all.whole, 200);
  CHECK(all.pool.prefix_stats().hits == 3);
  changing.adapt(nullptr);
  changing.truncate(100);
  CHECK(all.append(changing, all.whole, 100));
  CHECK(all.pool.prefix_stats().hits == 6);  // its own tokens are recomputed for the base model
  changing.join(1);
  changing.truncate(100);
  CHECK(all.append(changing, all.whole, 100));
  CHECK(all.pool.prefix_stats().hits == 9);  // and again as the tenant's
  CHECK(changing.shares_with(tenant));
  CHECK_FALSE(changing.shares_with(first));
}

TEST_CASE("tokens that may be rolled back, and pages from a file, are not shared") {
  SharedPrefix<> all("llama-mha3h", 200);
  Sequence drafted(all.pool);
  CHECK(all.append(drafted, all.whole, 60));
  Batch batch;
  batch.add(drafted, some_text(9, 8, all.model.info().vocab), {.result = RowResult::logits, .rows = 8});
  all.model.forward(batch);
  CHECK(all.pool.prefix_stats().pages == 0);
  drafted.truncate(60);
  CHECK(all.append(drafted, all.whole, 70));
  CHECK(all.pool.prefix_stats().pages == 2);

  std::stringstream file;
  drafted.save(file);
  const KvPool empty = all.model.pool({.share_prefixes = true});
  Sequence loaded = Sequence::load(file, empty);
  CHECK(all.append(loaded, all.whole, 70));
  CHECK(empty.prefix_stats().pages == 0);
  loaded.truncate(0);
  CHECK(all.append(loaded, all.whole, 70));  // now it has been computed
  CHECK(empty.prefix_stats().pages == 1);
}

TEST_CASE("a text beyond LongRoPE's original context shares nothing") {
  SharedPrefix<> all("phi3-longrope", 300);
  for (int i = 0; i < 2; ++i) {
    Sequence sequence(all.pool);
    CHECK(all.append(sequence, all.whole, 300));
    CHECK(all.pool.prefix_stats().pages == 0);
  }
}

TEST_CASE("the least recently used pages are freed first, and none that a text holds") {
  SharedPrefix<> all("llama-mha3h", 130, 7);
  const Text other = all.other(2), third = all.other(3);
  const auto run = [&](const Text& text) {
    Sequence sequence(all.pool);
    const std::int64_t hits = all.pool.prefix_stats().hits;
    CHECK(all.append(sequence, text, 130));
    return all.pool.prefix_stats().hits - hits;
  };
  CHECK(run(all.whole) == 0);
  CHECK(run(other) == 0);
  CHECK(run(all.whole) == 2);
  CHECK(all.pool.prefix_stats().evictions == 0);
  CHECK(all.pool.idle() == 4 * all.page);
  Sequence held(all.pool);
  CHECK(all.append(held, third, 130));
  CHECK(all.pool.used() == 7 * all.page);
  CHECK(run(all.whole) == 2);  // except its last page, which is freed for the written one
  CHECK(all.pool.prefix_stats().evictions == 1);
  CHECK(run(other) == 1);  // its end was freed first, and the rest is found
  Sequence large(all.pool);
  Batch batch;
  batch.add(large, some_text(5, 255, all.model.info().vocab));
  all.model.forward(batch);  // four pages, beside the three that are held
  CHECK(all.pool.idle() == 0);
  Sequence last(all.pool);
  CHECK(error_id([&] { all.append(last, all.whole, 130); }) == "cache.full");
  CHECK(held.length() == 130);
  large.truncate(0);
  CHECK(run(third) == 2);
}

TEST_CASE("a text that is rolled back into a page of the index needs no memory for a second one") {
  SharedPrefix<> all("llama-mha3h", 200, 2);
  Sequence sequence(all.pool);
  CHECK(all.append(sequence, all.whole, 128));
  CHECK(all.pool.prefix_stats().pages == 2);
  sequence.truncate(100);
  CHECK(all.append(sequence, all.whole, 28));
  CHECK(all.pool.prefix_stats().pages == 2);
}
