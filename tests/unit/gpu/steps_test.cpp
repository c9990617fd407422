// A step on the device: five launches per layer, recorded once and replayed, with tokens chosen there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <sstream>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/gpu/lanes.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/random.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/adapted_texts.hpp"
#include "support/counting_lanes.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using backend::GpuOptions;
using backend::Lanes32;

namespace {

constexpr ModelConfig shape{
    .layers = 3, .hidden = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 101};

template <class Device>
using TextOn = Session<Model<Dynamic, Fp32, Device>>;
using OnLanes = TextOn<Lanes32>;

template <class Device>
TextOn<Device> load_on(const std::filesystem::path& folder, Device device) {
  auto checkpoint = std::make_shared<const Checkpoint>(folder);
  const Dynamic config{checkpoint->config()};
  return TextOn<Device>({config, std::move(checkpoint), std::move(device)});
}

std::vector<float> step(OnLanes& text, Token token) {
  const auto logits = text.forward(std::vector<Token>{token}, 1);
  return {logits.data, logits.data + logits.size()};
}

/// Lets the sequence's pool allocate memory for these positions, so that later counts exclude pages.
template <class Device>
void take_pages(const TextOn<Device>& text, int positions) {
  Sequence other = text.model().sequence();
  detail::paged(other).make_writable(0, positions);
}

}  // namespace

TEST_CASE("a step is five launches per layer, and a recorded one is replayed") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  Lanes32 device;
  OnLanes model = load_on(folder.path(), device);
  const auto launches_of = [&](Token token) {
    const long before = device.runtime().launches();
    step(model, token);
    return device.runtime().launches() - before;
  };
  const int embed = 1, logits = 1;
  CHECK(launches_of(5) == embed + 5 * shape.layers + logits);  // runs
  CHECK(launches_of(6) == embed + 5 * shape.layers + logits);  // is recorded
  CHECK(launches_of(7) == logits);                             // is replayed
  CHECK(launches_of(8) == logits);
}

TEST_CASE("replayed steps have the bits of direct steps, across the boundary of a chunk and after a rollback") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  OnLanes replayed = load_on(folder.path(), Lanes32{});
  const auto check = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      OnLanes fresh = load_on(folder.path(), Lanes32{1});  // its first step of a shape runs
      std::vector<Token> text;
      for (int k = 0; k < i; ++k) text.push_back(static_cast<Token>(k * 7 % 101));
      if (i > 0) fresh.forward(text, 0);
      const Token token = static_cast<Token>(i * 7 % 101);
      REQUIRE(step(replayed, token) == step(fresh, token));
    }
  };
  check(0, 5);
  std::vector<Token> text;
  for (int k = 5; k < 60; ++k) text.push_back(static_cast<Token>(k * 7 % 101));
  replayed.forward(text, 0);
  check(60, 70);  // two chunks from 64 on, and scratch memory that has grown
  replayed.truncate(62);
  check(62, 66);
}

namespace {

using Counting = backend::Gpu<CountingLanes>;
using Counts = CountingLanes::Counts;

/// One step after another; the host chooses the token from a row of logits.
template <LanguageModel M>
std::vector<Token> proposed_by_host(Session<M>& text, std::vector<Token> tokens, int count, const Sampling& sampling) {
  std::vector<Token> proposed;
  Processor processor;
  for (int i = 0; i < count; ++i) {
    const auto logits = text.forward(tokens, 1);
    processor.start(sampling, static_cast<int>(logits.extent(1)), tokens, 1);
    const std::span<const float> row{logits.row(0), static_cast<std::size_t>(logits.extent(1))};
    Distribution p;
    REQUIRE(processor.distribution(row, p));
    tokens = {PhiloxRandom{sampling.seed, static_cast<std::uint64_t>(text.length())}.race(0, p)};
    proposed.push_back(tokens.front());
  }
  return proposed;
}

std::vector<Token> copied(std::span<const Token> tokens) { return {tokens.begin(), tokens.end()}; }

void check_draft(const std::string& name) {
  const auto folder = fixture(text("models/", name));
  Counting device;
  TextOn<Counting> model = load_on(folder, device);
  OnLanes plain = load_on(folder, Lanes32{1});
  const int context = model.info().context;
  take_pages(model, context);
  const Counts at_load = device.runtime().counts();
  const Sampling sampling =
      GENERATE(Sampling{.temperature = 0}, Sampling{.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .seed = 8});
  const Draw draw = draw_of(sampling, model.info().vocab);
  constexpr int tokens = 5;
  Token anchor = 9;
  const int rounds = context > 80 ? 16 : 6;  // across the boundary of a chunk
  for (int round = 0; round < rounds; ++round) {
    const Counts before = device.runtime().counts();
    const std::vector<Token> proposed = copied(model.propose(std::vector<Token>{anchor}, tokens, draw));
    REQUIRE(proposed == proposed_by_host(plain, {anchor}, tokens, sampling));
    REQUIRE(model.length() == plain.length());
    anchor = proposed.back();
    if (round < 3 || round > 11) continue;
    const Counts& now = device.runtime().counts();
    CHECK(now.launches == before.launches);
    CHECK(now.replays - before.replays == 1);
    CHECK(now.copies_in - before.copies_in == 1);
    CHECK(now.copies_out - before.copies_out == 1);
    CHECK(now.copied_bytes - before.copied_bytes == tokens * 4);
    CHECK(now.waits - before.waits == 1);
  }
  CHECK(device.runtime().counts().allocations == at_load.allocations);
}

}  // namespace

TEST_CASE("a draft's tokens are one copy, one graph, one copy back and one wait, and equal the host's tokens") {
  check_draft(GENERATE("llama-mha3h", "opt-postln-proj"));
}

TEST_CASE("a draft's tokens are one copy, one graph, one copy back and one wait: other models", "[long]") {
  check_draft(GENERATE("gpt2", "opt-preln", "gemma3n", "gemma4-e2b", "gemma4-moe", "deepseek-v3"));
}

TEST_CASE("models that drop cache entries propose the host's tokens, also when entries are dropped") {
  const auto folder = fixture(GENERATE("models/phi3-longrope", "models/phi3-swa7"));
  OnLanes model = load_on(folder, Lanes32{}), plain = load_on(folder, Lanes32{1});
  const Sampling sampling{.temperature = 0.9f, .seed = 8};
  const Draw draw = draw_of(sampling, model.info().vocab);
  Token anchor = 9;
  while (model.length() + 7 < std::min(model.info().context, 48)) {
    const std::vector<Token> proposed = copied(model.propose(std::vector<Token>{anchor}, 7, draw));
    REQUIRE(proposed == proposed_by_host(plain, {anchor}, 7, sampling));
    REQUIRE(model.length() == plain.length());
    anchor = proposed.back();
  }
  REQUIRE(model.length() > 30);
}

TEST_CASE("verifying a draft copies back only tokens, by one recorded step") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  Counting device;
  TextOn<Counting> model = load_on(folder.path(), device);
  OnLanes plain = load_on(folder.path(), Lanes32{1});
  take_pages(model, 64);
  const int at_load = device.runtime().counts().allocations;
  const Sampling sampling{.temperature = 0.8f, .seed = 3};
  const Draw draw = draw_of(sampling, shape.vocab);
  const std::vector<Token> text{5, 90, 0, 31, 31};
  for (int round = 0; round < 4; ++round) {
    const Counts before = device.runtime().counts();
    const std::vector<Token> chosen = copied(model.choose(text, 4, draw));
    const Counts& now = device.runtime().counts();
    CHECK(now.replays - before.replays == (round > 0));
    CHECK(now.copied_bytes - before.copied_bytes == 4 * 4);
    CHECK(now.waits - before.waits == 1);
    for (std::size_t r = 0; r < text.size(); ++r) {
      const std::vector<Token> expected = proposed_by_host(plain, {text[r]}, 1, sampling);
      if (r > 0) CHECK(chosen[r - 1] == expected.front());
    }
  }
  CHECK(device.runtime().counts().allocations == at_load);
}

TEST_CASE("with adapters each product is one more launch, and a recorded step serves all adapters") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  const auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  Counting device;
  const Model<Dynamic, Fp32, Counting> model(Dynamic{checkpoint->config()}, checkpoint, device);
  const auto adapters = some_adapters(model, *checkpoint);
  const auto counts_of = [&](const std::vector<AdapterRef>& of_texts) {
    std::vector<Sequence> texts;
    for (const AdapterRef& adapter : of_texts) (texts.emplace_back(model.sequence())).adapt(adapter);
    Batch batch;
    const Token token = 7;
    for (Sequence& text : texts) batch.add(text, {&token, 1}, {.result = RowResult::choice});
    const Counts before = device.runtime().counts();
    model.forward(batch);
    const Counts& now = device.runtime().counts();
    return std::vector<int>{now.launches - before.launches, now.replays - before.replays,
                            now.copies_in - before.copies_in};
  };
  const int bare = 1 + 5 * shape.layers + 2, adapted = bare + 1 + 4 * shape.layers + 1;
  CHECK(counts_of({nullptr, nullptr, nullptr}) == std::vector{bare, 0, 1});             // runs
  CHECK(counts_of({nullptr, nullptr, nullptr}) == std::vector{bare, 1, 1});             // is recorded
  CHECK(counts_of({adapters[0], adapters[1], nullptr}) == std::vector{adapted, 0, 1});  // another shape
  CHECK(counts_of({nullptr, nullptr, adapters[2]}) == std::vector{adapted, 1, 1});      // is recorded
  CHECK(counts_of({adapters[3], nullptr, adapters[1]}) == std::vector{0, 1, 1});        // is replayed
  CHECK(counts_of({adapters[2], adapters[2], adapters[0]}) == std::vector{0, 1, 1});
}

TEST_CASE("an adapter is copied to the device once, and freed with its last user") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3);
  const auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  Counting device;
  const Model<Dynamic, Fp32, Counting> model(Dynamic{checkpoint->config()}, checkpoint, device);
  const TemporaryFolder trained;
  write_random_adapter(trained.path(), *checkpoint, {});
  const AdapterRef on_host = model.info().read_adapter(trained.path());
  const Counts before = device.runtime().counts();
  AdapterRef adapter = model.info().place_adapter(on_host);
  CHECK(device.runtime().counts().allocations - before.allocations == 1);
  CHECK(device.runtime().counts().copies_in - before.copies_in == 2);
  CHECK(device.runtime().counts().elsewhere - before.elsewhere == 1);  // the small tables, not the matrices
  CHECK(adapter->memory != on_host->memory);
  const std::weak_ptr<const std::byte[]> memory = adapter->memory;
  Sequence text = model.sequence(), other = model.sequence();
  text.adapt(adapter);
  other.adapt(std::exchange(adapter, nullptr));
  text.adapt(nullptr);
  CHECK_FALSE(memory.expired());
  other.adapt(on_host);
  CHECK(memory.expired());
}

TEST_CASE("an adapter with too many ranks in one product is rejected") {
  Adapter adapter{.name = "wide", .changes = {{.rank = gpu::most_ranks}, {.rank = 1}}, .begins = {0, 2}};
  CHECK_THROWS_WITH(Lanes32{}.place(adapter), Catch::Contains("adapter.rank"));
}

TEST_CASE("plans, logits and tokens use memory that the device accesses directly") {
  const TemporaryFolder folder;
  ModelConfig wide = shape;
  wide.vocab = 50000;  // 48 rows of logits exceed one landing buffer
  write_random_checkpoint<float>(folder.path(), wide, 3);
  Counting device;
  TextOn<Counting> model = load_on(folder.path(), device);
  TextOn<backend::Reference> plain = load_on(folder.path(), backend::Reference{});
  std::vector<Token> text;
  device.runtime().counts() = {};
  for (int k = 0; k < 48; ++k) text.push_back(static_cast<Token>(k * 7 % 101));
  const auto found = model.forward(text, 48), expected = plain.forward(text, 48);
  double worst = 0;
  for (std::int64_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(double{found.data[i]} - double{expected.data[i]}));
  }
  CHECK(worst < 0.05);
  model.propose(std::vector<Token>{5}, 3, draw_of({.temperature = 0}, wide.vocab));
  const Counts& counts = device.runtime().counts();
  CHECK(counts.copies_out > 3);
  CHECK(counts.copies_in > 1);
  CHECK(counts.elsewhere == 0);
}

TEST_CASE("a sequence saved on one device continues on another, with the same bits") {
  const auto checkpoint = std::make_shared<const Checkpoint>(
      fixture(GENERATE("models/llama-mha3h", "models/mistral-swa8", "models/phi3-longrope")));
  const Dynamic config{checkpoint->config()};
  const Model<Dynamic, Fp32, Lanes32> model(config, checkpoint, Lanes32{}), other(config, checkpoint, Lanes32{1});
  Sequence text = model.sequence();
  Batch batch;
  const auto append = [&](const auto& to, Sequence& sequence, const std::vector<Token>& tokens) {
    batch.clear();
    batch.add(sequence, tokens, {.result = RowResult::logits});
    to.forward(batch);
    const auto logits = batch.logits(0);
    return std::vector<float>(logits.data, logits.data + logits.size());
  };
  append(model, text, {5, 90, 0, 31, 31, 7, 64, 2, 18, 42, 11, 3, 77, 8, 9});
  std::stringstream bytes;
  text.save(bytes);
  Sequence again = Sequence::load(bytes, other.pool());
  for (Token token = 20; token < 24; ++token) CHECK(append(other, again, {token}) == append(model, text, {token}));
}

TEST_CASE("tokens that do not fit into the KV memory, and unsupported heads, are rejected") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), shape, 3, false, 12);
  OnLanes model = load_on(folder.path(), Lanes32{});
  const std::vector<Token> text{5, 90, 0, 31, 31, 7};
  const Draw draw = draw_of({}, shape.vocab);
  model.choose(text, 2, draw);
  CHECK_THROWS_WITH(model.propose(text, 2, draw), Catch::Contains("batch.context-full"));
  CHECK_THROWS_WITH(model.choose(std::vector<Token>(7), 1, draw), Catch::Contains("batch.context-full"));
  CHECK_THROWS_WITH(model.choose(std::vector<Token>{101}, 1, draw), Catch::Contains("batch.token-out-of-range"));
  CHECK(model.length() == 6);
  CHECK(model.propose(text, 1, draw).size() == 1);
  CHECK(model.length() == 12);

  const TemporaryFolder wide;
  ModelConfig heads = shape;
  heads.head_dim = 592;
  write_random_checkpoint<float>(wide.path(), heads, 3, false, 12);
  CHECK_THROWS_WITH(load_on(wide.path(), Lanes32{}), Catch::Contains("gpu.head-dim"));
}
