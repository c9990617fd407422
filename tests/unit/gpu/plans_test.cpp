// A step's plan on the device: the parts in a recording's key, its location, and that no plan is overwritten before the
// device has read it.
#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "support/lazy_lanes.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using gpu::Choice;
using gpu::StepShape;

namespace {

/// A plan with its data: a number of rows of each sequence, whose last rows are outputs.
struct OwnedPlan {
  std::vector<PlanRow> rows;
  std::vector<PlanSequence> sequences;
  std::vector<std::byte*> pages;
  std::vector<int> outputs;
  std::vector<Draw> draws;
  int steps = 1;

  void add(int count, int position, int rope = 0, int table = 1) {
    const int first = static_cast<int>(rows.size()), sequence = static_cast<int>(sequences.size());
    for (int r = 0; r < count; ++r)
      rows.push_back({.token = 7 * first + r, .position = position + r, .sequence = sequence});
    sequences.push_back({first, count, rope, static_cast<int>(pages.size()), table});
    for (int page = 0; page < table; ++page)
      pages.push_back(reinterpret_cast<std::byte*>(std::size_t{64} * pages.size()));
    outputs.push_back(static_cast<int>(rows.size()) - 1);
  }
  OwnedPlan with(const std::function<void(OwnedPlan&)>& change) const {
    OwnedPlan other = *this;
    change(other);
    return other;
  }
  operator StepPlan() const {
    return {.rows = rows, .sequences = sequences, .pages = pages, .outputs = outputs, .draws = draws, .steps = steps};
  }
};

OwnedPlan three_texts() {
  OwnedPlan plan;
  plan.add(1, 30);
  plan.add(5, 70);
  plan.add(3, 0);
  return plan;
}

}  // namespace

TEST_CASE("steps with different launches or addresses have separate recordings") {
  const OwnedPlan plan = three_texts();
  const Draw race{.scale = 1, .vocab = 9}, cut{.scale = 1, .top_k = 3, .vocab = 9};
  const auto key = [](const StepPlan& of, int generation = 0) { return StepShape::of(of, 64, generation); };
  const std::set<StepShape> keys{
      key(plan),
      key(plan, 1),
      key(plan.with([](OwnedPlan& p) { p.add(4, 0); })),
      key(plan.with([](OwnedPlan& p) { p.rows[5].position = 200; })),
      key(plan.with([](OwnedPlan& p) { p.outputs = {8}; })),
      key(plan.with([](OwnedPlan& p) { p.outputs = {0, 1, 2, 3, 4, 5, 6, 7, 8}; })),
      key(plan.with([](OwnedPlan& p) {
        p.sequences = {{0, 1}, {1, 8}};
      })),
      key(plan.with([](OwnedPlan& p) {
        p.sequences = {{0, 9}};
      })),
      key(plan.with([](OwnedPlan& p) {
        p.sequences = {{0, 3}, {3, 3}, {6, 3}};
      })),
      key(plan.with([](OwnedPlan& p) { p.draws.resize(3); })),
      key(plan.with([&](OwnedPlan& p) {
        p.draws = {{}, race, {}};
      })),
      key(plan.with([&](OwnedPlan& p) {
        p.draws = {race, cut, {}};
      })),
      key(plan.with([](OwnedPlan& p) { p.draws.resize(3), p.steps = 2; })),
      key(plan.with([](OwnedPlan& p) { p.draws.resize(3), p.steps = 3; })),
  };
  CHECK(keys.size() == 14);
  CHECK(key(plan).recordable);
  CHECK_FALSE(StepShape::of(plan, 8, 0).recordable);

  // Every row an output, of 9 rows and of 10, and a selection of 9 of 10: both are padded to 12.
  OwnedPlan ten;
  for (int i = 0; i < 10; ++i) ten.add(1, i);
  const OwnedPlan nine_of_ten = ten.with([](OwnedPlan& p) { p.outputs.pop_back(); });
  CHECK(key(ten).outputs == key(nine_of_ten).outputs);
  CHECK(key(ten) != key(nine_of_ten));
}

TEST_CASE("steps that differ in tokens, positions of a chunk, pages or draws of one kind share a recording") {
  const OwnedPlan plan = three_texts();
  const auto key = [](const StepPlan& of) { return StepShape::of(of, 64, 0); };
  CHECK(key(plan) == key(plan.with([](OwnedPlan& p) {
          for (PlanRow& row : p.rows) row.token += 1, row.position += 20;
          p.pages.assign(40, nullptr);
        })));
  CHECK(key(plan) == key(plan.with([](OwnedPlan& p) {
          p.rows.push_back({.position = 3, .sequence = 2});
          p.sequences[2].rows = 4;
        })));
}

TEST_CASE("a plan is unchanged on the device, padded with rows of no sequence; a larger one moves it") {
  backend::Lanes32::Runtime runtime;
  auto stream = runtime.make_stream();
  gpu::PlanUpload upload(runtime);
  OwnedPlan plan = three_texts();
  plan.add(1, 5, 1, 3);
  plan.steps = 2;
  for (std::uint64_t i = 0; i < plan.outputs.size(); ++i) plan.draws.push_back({.scale = 1, .seed = i, .vocab = 9});
  const auto check = [&] {
    const StepShape shape = StepShape::of(plan, 64, 0);
    upload.send(plan, shape, stream);
    const gpu::DevicePlan there = upload.place(shape);
    REQUIRE(there.rows.size == 12);
    for (int r = 0; r < 12; ++r) {
      const gpu::StepRow& row = there.rows[r];
      if (r >= 10) {
        CHECK(row.sequence == -1);
        CHECK(row.token == 0);
        continue;
      }
      const PlanRow& expected = plan.rows[static_cast<std::size_t>(r)];
      const PlanSequence& sequence = plan.sequences[static_cast<std::size_t>(expected.sequence)];
      CHECK(row.token == expected.token);
      CHECK(row.position == expected.position);
      CHECK(row.sequence == expected.sequence);
      CHECK(row.rope == sequence.rope);
      CHECK(row.first_page == sequence.first_page);
      CHECK(row.pages == sequence.pages);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      CHECK(there.sequences[at].first_row == plan.sequences[i].first_row);
      CHECK(there.sequences[at].rows == plan.sequences[i].rows);
      CHECK(there.outputs[at] == plan.outputs[i]);
      CHECK(there.draws[at] == plan.draws[i]);
      CHECK(there.next[at].sequence == -1);
    }
    for (std::size_t i = 0; i < plan.pages.size(); ++i)
      REQUIRE(there.tables[static_cast<std::int64_t>(i)] == plan.pages[i]);
  };
  CHECK_FALSE(upload.reserve(StepShape::of(plan, 64, 0), plan.pages.size(), stream));
  check();
  plan.sequences[3].first_page = static_cast<int>(plan.pages.size());
  plan.sequences[3].pages = 50000;
  for (std::size_t i = 0; i < 50000; ++i) plan.pages.push_back(reinterpret_cast<std::byte*>(i * 64));
  CHECK(upload.reserve(StepShape::of(plan, 64, 0), plan.pages.size(), stream));
  CHECK_FALSE(upload.reserve(StepShape::of(plan, 64, 0), plan.pages.size(), stream));
  check();
  check();  // the other half
  check();
}

TEST_CASE("plans wait if the device is busy") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3);
  const auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  std::vector<Token> text;
  for (int k = 0; k < 400; ++k) text.push_back(static_cast<Token>(k * 37 % 101));
  backend::Gpu<LazyLanes> device;
  Session busy(Model<Dynamic, Fp32, backend::Gpu<LazyLanes>>(Dynamic{tiny_shape}, checkpoint, device));
  Session idle(Model<Dynamic, Fp32, backend::Lanes32>(Dynamic{tiny_shape}, checkpoint, backend::Lanes32{}));
  const long before = device.runtime().waits();
  const auto found = busy.forward(text, 1), expected = idle.forward(text, 1);  // nine steps
  CHECK(std::equal(found.data, found.data + found.size(), expected.data));
  CHECK(device.runtime().waits() > before + 3);
}

TEST_CASE("recordings of many shapes that would fill the device are dropped, and recorded again") {
  using Runtime = backend::Lanes32::Runtime;
  struct State {
    Runtime runtime;
    Runtime::Stream stream = runtime.make_stream();
    backend::GpuOptions options;
    gpu::StepProgram<Runtime>* program = nullptr;
  } state;
  gpu::StepGraphs<Runtime> graphs;
  unsigned char byte = 0;
  int bodies = 0, done = 0;
  const auto run = [&](int rows) {
    byte = 0;
    graphs.run({.rows = rows}, state, [&] {
      ++bodies;
      state.runtime.fill(&byte, 7, 1, state.stream);
    });
    done += byte == 7;
  };
  const int most = static_cast<int>(graphs.most);
  for (int rows = 0; rows < most; ++rows) {
    for (int time = 0; time < 3; ++time) run(rows);
  }
  CHECK(bodies == 2 * most);  // run, recorded, replayed
  run(most);
  run(0);
  run(0);
  run(0);
  CHECK(bodies == 2 * most + 3);
  CHECK(done == 3 * most + 4);
}

TEST_CASE("a recording whose memory has moved is not replayed") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3);
  const auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  backend::Lanes32 device;
  Session text(Model<Dynamic, Fp32, backend::Lanes32>(Dynamic{tiny_shape}, checkpoint, device));
  const auto launches_of_step = [&] {
    const long before = device.runtime().launches();
    text.forward(std::vector<Token>{5}, 1);
    return device.runtime().launches() - before;
  };
  const long run = launches_of_step();
  launches_of_step();
  const long replayed = launches_of_step();
  REQUIRE(replayed < run);
  device.reserve({1, 1, 1}, 100000, 1, 1);  // as when another model is loaded
  CHECK(launches_of_step() == run);
  CHECK(launches_of_step() == run);
  CHECK(launches_of_step() == replayed);
}
