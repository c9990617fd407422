// A backend with layers split over ranks: the stages' layers, pages in parts, and detection of missing rows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/page_shape.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/backend/shared_pages.hpp"
#include "slm/backend/split.hpp"
#include "slm/model/load_definition.hpp"
#include "slm/model/rank_group.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Reference;
using backend::SharedPages;
using backend::Split;
using ranks::Grid;
using ranks::run_threads;
using ranks::Threads;

namespace {

/// Ranks that, in some of their groups, do not receive broadcasts.
struct Deaf {
  Threads ranks;
  bool hears = true;
  std::shared_ptr<int> left = std::make_shared<int>(0);  // groups to create; all except the last do not receive

  int rank() const { return ranks.rank(); }
  int size() const { return ranks.size(); }
  void broadcast(std::span<std::byte> bytes, int root) const {
    std::vector<std::byte> lost(bytes.begin(), bytes.end());
    ranks.broadcast(hears ? bytes : std::span(lost), root);
  }
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t> sizes,
                  std::span<std::byte> all) const {
    ranks.all_gather(share, sizes, all);
  }
  void all_reduce(std::span<std::uint64_t> of, ranks::Reduction reduction) const { ranks.all_reduce(of, reduction); }
  void barrier() const { ranks.barrier(); }
  Deaf split(int color, int key) const { return {ranks.split(color, key), *left > 0 ? --*left == 0 : true}; }
  void fail(const std::string& reason) const { ranks.fail(reason); }
  void poll() const { ranks.poll(); }
};

std::vector<float> logits_of(const AnyModel& model) {
  Sequence text = model.sequence();
  Batch batch;
  const std::vector<Token> tokens{1, 7, 3, 9};
  batch.add(text, tokens, {.result = RowResult::logits, .rows = 4});
  model.forward(batch);
  return {batch.logits(0).data, batch.logits(0).data + batch.logits(0).size()};
}

/// The results of two stages. The groups of their ranks are those of each stage, of both, which pass rows on, and the
/// one that returns results.
std::vector<float> of_stages(int groups) {
  std::vector<float> found;
  run_threads(2, [&](const Threads& threads) {
    Deaf ranks{threads};
    *ranks.left = groups;
    const auto team = std::make_shared<ranks::Team<Deaf>>(ranks);
    RankGroup<Reference, Deaf> group(Reference{}, team);
    if (ranks.rank() > 0) return group.follow();
    found = logits_of(group.load(fixture("models/llama-bias"), {}, {.stages = 2}));
  });
  return found;
}

/// Pages of this shape can be written, copied and read over ranks, and each rank has its part.
void check_pages(const KvPageShape& shape) {
  std::vector<std::byte> contents(shape.bytes());
  for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<std::byte>(i % 251);
  for (const auto& [size, stages] : {std::pair{6, 3}, {6, 1}, {10, 1}, {12, 1}, {3, 3}, {2, 1}}) {
    run_threads(size, [&, stages = stages](const Threads& ranks) {
      const auto grid = std::make_shared<const Grid<Threads>>(ranks, stages);
      SharedPages<Reference, Threads> pages(Reference{}, grid);
      const auto bytes = static_cast<std::ptrdiff_t>(shape.bytes());
      std::byte* const first = pages.new_name(3 * shape.bytes());
      std::byte* const other = pages.new_name(shape.bytes());
      pages.hold(first, shape, 3);
      pages.hold(other, shape, 1);
      if (other < first + 3 * bytes) throw Error("names overlap");
      pages.write(first + bytes, contents.data());
      pages.copy(first + 2 * bytes, first + bytes);
      pages.copy(other, first + 2 * bytes);
      std::vector<std::byte> read(contents.size());
      pages.read(read.data(), other);
      if (read != contents) throw Error("other contents");
      pages.read(read.data(), first);
      if (read == contents) throw Error("an unwritten page has these contents");
      const KvPageShape::Part part = shape.part_of(grid->stage, stages, grid->lane, grid->lanes);
      if (pages.part_begins(first) != part.first * shape.layer_bytes()) throw Error("another part");
      const std::byte* const own = pages.own(first + bytes);
      if ((own == nullptr) != (part.bytes() == 0)) throw Error("a part of nothing");
      part.for_each_run([&](std::size_t whole, std::size_t begin, std::size_t count) {
        if (count > 0 && std::memcmp(own + begin, contents.data() + whole, count) != 0) throw Error("others' part");
      });
      if (pages.own(nullptr) != nullptr) throw Error("a page that is not there");
      if (error_id([&] { pages.own(first + 3 * bytes); }) != "ranks.out-of-step") throw Error("a page too many");
      pages.give_up(other);
      if (error_id([&] { pages.own(other); }) != "ranks.out-of-step") throw Error("a page that was given up");
    });
  }
}

}  // namespace

TEST_CASE("every layer has one stage, and the numbers of layers differ by at most one") {
  for (const int layers : {1, 2, 7, 16, 81}) {
    for (int stages = 1; stages <= layers; ++stages) {
      const LayerCut cut{layers, stages};
      CHECK(cut.first(0) == 0);
      CHECK(cut.first(stages) == layers);
      for (int stage = 0; stage < stages; ++stage) {
        const int count = cut.first(stage + 1) - cut.first(stage);
        CHECK((count == layers / stages || count == layers / stages + 1));
        for (int layer = cut.first(stage); layer < cut.first(stage + 1); ++layer) CHECK(cut.stage_of(layer) == stage);
      }
    }
  }
}

TEST_CASE("ranks find their neighbours: those of their stage, and their lane's in the adjacent stages") {
  run_threads(6, [](const Threads& ranks) {
    const Grid<Threads> grid(ranks, 3);
    const auto rank_in = [&](const Threads& group, int place) {
      auto rank = static_cast<std::uint64_t>(ranks.rank());
      group.broadcast(std::as_writable_bytes(std::span(&rank, 1)), place);
      return static_cast<int>(rank);
    };
    const auto require = [](bool holds) {
      if (!holds) throw Error("another rank");
    };
    require(grid.stage == ranks.rank() / 2 && grid.lane == ranks.rank() % 2 && grid.peers.size() == 2);
    require(rank_in(grid.peers, 1) == grid.stage * 2 + 1);
    require(grid.previous.has_value() == (grid.stage > 0) && grid.next.has_value() == (grid.stage < 2));
    if (grid.next && grid.stage == 0) require(rank_in(*grid.next, 1) == ranks.rank() + 2);
    if (grid.previous && grid.stage == 1) require(rank_in(*grid.previous, 1) == ranks.rank());
    require(grid.ends.has_value() == (ranks.rank() == 0 || ranks.rank() == 4));
    if (grid.ends) require(rank_in(*grid.ends, 1) == 4);
  });
}

TEST_CASE("ranks hold their own layers and heads of a page, and together a whole page") {
  const KvPageShape shape{.layers = {0, 2, 3, 6}, .of_layers = 7, .head_bytes = 500, .heads = {10, 5, 4}};
  REQUIRE(shape.layer_bytes() == 5000);
  for (const auto& [stages, layers_of_first] : {std::pair{1, 4u}, {2, 3u}, {3, 2u}, {7, 1u}}) {
    CHECK(shape.part_of(0, stages, 0, 1).bytes() == layers_of_first * shape.layer_bytes());
    for (const auto& [lanes, expected] : {std::pair{1, 1}, {2, 1}, {3, 1}, {7, 1}, {10, 2}, {11, 11}}) {
      std::vector<int> holders(shape.bytes());  // of each byte
      for (int rank = 0; rank < stages * lanes; ++rank) {
        const KvPageShape::Part part = shape.part_of(rank / lanes, stages, rank % lanes, lanes);
        std::size_t next = 0;
        part.for_each_run([&](std::size_t first, std::size_t own, std::size_t bytes) {
          CHECK(own == next);
          next += bytes;
          for (std::size_t i = first; i < first + bytes; ++i) ++holders.at(i);
        });
        CHECK(next == part.bytes());
      }
      CHECK(std::count(holders.begin(), holders.end(), expected) == static_cast<std::ptrdiff_t>(holders.size()));
    }
  }
  check_pages(shape);
}

TEST_CASE("every rank of a stage holds the whole recurrent states of its layers") {
  const KvPageShape shape{.layers = {0, 1, 4, 5},
                          .of_layers = 7,
                          .head_bytes = 640,
                          .parts = 1,
                          .heads = {.query = 0, .kv = 1, .dim = 0},
                          .whole = true};
  REQUIRE(shape.bytes() == 4 * 640);
  for (const auto& [stages, expected] :
       {std::pair{1, std::vector{4u}}, {2, {2u, 2u}}, {3, {2u, 1u, 1u}}, {7, {1u, 1u, 0u, 0u, 1u, 1u, 0u}}}) {
    for (int stage = 0; stage < stages; ++stage) {
      for (int lane = 0; lane < 3; ++lane)
        CHECK(shape.part_of(stage, stages, lane, 3).bytes() == expected[static_cast<std::size_t>(stage)] * 640);
    }
  }
  check_pages(shape);
}

TEST_CASE("a stage holds only the weights of its layers") {
  const auto whole = load(demo_pair("target"), Reference{}).info().step_bytes;
  const ModelConfig shape = Checkpoint(demo_pair("target")).config();
  const std::int64_t row = 2 * shape.hidden, head = shape.vocab * row;  // bytes, in bf16
  std::vector<std::int64_t> held(3);
  run_threads(3, [&](const Threads& ranks) {
    const Split<Reference, Threads> device(Reference{}, ranks, 3);
    held[static_cast<std::size_t>(ranks.rank())] = load(demo_pair("target"), device).info().step_bytes;
  });
  // The first stage has the tied embedding, as the last stage does.
  CHECK(held[1] == (whole - head - row) / 3);
  CHECK(held[2] == held[1] + head + row);
  CHECK(held[0] == held[2]);
}

TEST_CASE("the test detects rows that are not passed on") {
  const auto expected = logits_of(load(fixture("models/llama-bias"), Reference{}));
  const auto same = [&](const std::vector<float>& found) {
    return std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0;
  };
  CHECK(same(of_stages(0)));
  CHECK(!same(of_stages(3)));
}
