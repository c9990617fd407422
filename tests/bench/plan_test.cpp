// The cost model: bytes equal those of models, parts sum to the whole, and times follow from the figures.
#include "bench/command/plan/cost.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "bench/command/plan/models.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/head_cut.hpp"
#include "slm/backend/split.hpp"
#include "slm/model/load.hpp"
#include "slm/ranks/alone.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "tools/cli/rank_speed.hpp"

using namespace slm;
using namespace slm::bench::plan;
using namespace slm::testing;

namespace {

const PlanDevice device{.name = "test",
                        .memory = 64e9,
                        .bandwidth = 1e12,
                        .arithmetic = 1e14,
                        .latency = 1e-5,
                        .link = 1e10,
                        .launch = 1e-6,
                        .share = 0.5};

PlannedModel seven(const std::string& format = "bf16") { return planned_model("Llama-2-7B", format); }

/// Bytes of a rank's share, by any method of counting.
template <class Share>
bool shares_are_the_whole(const PlannedModel& model, int ranks, Share share) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += share(model, ranks, rank);
  const ModelConfig& shape = model.shape;
  const double vectors = (ranks - 1.0) * 4 * shape.layers * double(block_vector_count(shape));
  const HeadCut cut({shape.heads, shape.kv_heads, shape.head_dim}, shape.qk_norm, ranks);
  const double again = (cut.sharing - 1.0) * 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim * shape.hidden;
  return sum - vectors - again == held_weight_bytes(model, {}, 0, 0);
}

double share_of(const PlannedModel& model, int ranks, int rank) {
  return held_weight_bytes(model, {.tensor = ranks}, rank, 0);
}

/// Ignores the remainder if ranks do not divide the vocabulary's tiles.
double share_without_rest(const PlannedModel& model, int ranks, int rank) {
  PlannedModel cut = model;
  const auto part = [&](int width) { return width / ranks / 16 * 16 * ranks; };
  cut.shape.vocab = part(model.shape.vocab);
  return held_weight_bytes(cut, {.tensor = ranks}, rank, 0);
}

}  // namespace

TEST_CASE("one rank reads the bytes that a model of that checkpoint counts") {
  const backend::Cpu cpu{1};
  for (const std::string folder :
       {"llama-mha3h", "llama-sharded-bf16", "llama3-gqa-scaled-tied", "olmo-tied", "qwen3-qknorm-headdim",
        "phi-partial", "phi3-swa7", "gpt2", "opt-preln", "opt-postln-proj", "mpt-alibi-4h", "mpt-foundry-mqa"}) {
    INFO(folder);
    const auto path = fixture("models/" + folder);
    CHECK(step_weight_bytes(planned_model(path.string(), ""), {}, 0, 0) == double(load(path, cpu).info().step_bytes));
  }
  for (const std::string folder : {"target", "target-int4", "draft-int4"}) {
    INFO(folder);
    const auto path = demo_pair(folder);
    CHECK(step_weight_bytes(planned_model(path.string(), ""), {}, 0, 0) == double(load(path, cpu).info().step_bytes));
  }
}

TEST_CASE("a CPU stores GGUF's blocks in the bits that its model counts, a GPU in more") {
  for (const std::string file : {"gpt2.gguf", "llama-mha3h.gguf", "phi3-swa7.gguf", "qwen2-bias-tied.gguf"}) {
    INFO(file);
    const auto path = fixture("gguf/" + file);
    CHECK(step_weight_bytes(planned_model(path.string(), ""), {}, 0, 0) ==
          double(load(path, backend::Cpu{1}).info().step_bytes));
  }
  const std::string path = fixture("gguf/all-types.gguf").string();
  CHECK(step_weight_bytes(planned_model(path, "", false), {}, 0, 0) >
        step_weight_bytes(planned_model(path, ""), {}, 0, 0));
}

TEST_CASE("each of several ranks reads the bytes that its part of the model counts") {
  for (const std::string folder : {"target", "target-int4"}) {
    const PlannedModel model = planned_model(demo_pair(folder).string(), "");
    for (const int count : {2, 3, 8}) {
      std::vector<double> held(static_cast<std::size_t>(count));
      ranks::run_threads(count, [&](const ranks::Threads& ranks) {
        const backend::Split<backend::Cpu, ranks::Threads> split(backend::Cpu{1}, ranks);
        const AnyModel part = load(demo_pair(folder), split);
        held[static_cast<std::size_t>(ranks.rank())] = double(part.info().step_bytes);
      });
      for (int rank = 0; rank < count; ++rank) {
        INFO(folder << ", rank " << rank << " of " << count);
        CHECK(step_weight_bytes(model, {.tensor = count}, rank, 0) == held[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

TEST_CASE("the weights of ranks and of stages sum to the whole") {
  bool wrong_is_seen = false;
  for (const std::string name : {"AMD-Llama-135M", "SmolLM2-135M", "Llama-3-8B", "Phi-2", "GPT-2", "200B"}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8, 64}) {
      INFO(name << " on " << ranks);
      CHECK(shares_are_the_whole(planned_model(name, "bf16"), ranks, share_of));
      wrong_is_seen = wrong_is_seen || !shares_are_the_whole(planned_model(name, "bf16"), ranks, share_without_rest);
    }
  }
  CHECK(wrong_is_seen);

  const PlannedModel model = seven();
  for (const int stages : {2, 3, 32}) {
    double held = 0;
    for (int stage = 0; stage < stages; ++stage) held += held_weight_bytes(model, {.stages = stages}, 0, stage);
    CHECK(held == held_weight_bytes(model, {}, 0, 0));
  }
  PlannedModel tied = model;
  tied.tied = true;  // the table is in the first stage and in the last
  CHECK(held_weight_bytes(tied, {.stages = 2}, 0, 0) + held_weight_bytes(tied, {.stages = 2}, 0, 1) ==
        held_weight_bytes(tied, {}, 0, 0) + 2.0 * 32000 * 4096);
}

TEST_CASE("a 7B model has the bytes of a manual calculation") {
  const PlannedModel model = seven();
  const double matrices = 32.0 * (4 * 4096 * 4096 + 3 * 4096 * 11008);
  CHECK(step_weight_bytes(model, {}, 0, 0) == 2 * (matrices + 32000 * 4096 + 4096));
  // Codes of half a byte, and per 128 of them a scale of two bytes and a zero point of one; the head in 16 bits.
  // The 86 scales of down's 16 outputs of a tile end in the middle of a cache line.
  CHECK(step_weight_bytes(seven("int4"), {}, 0, 0) ==
        matrices / 2 + matrices / 128 * 3 + 2 * (32000 * 4096 + 4096) + 32 * (4096 / 16) * 32);
  CHECK(cache_bytes(model, {}, 32) == 524288);                                     // half a MiB per token
  CHECK(gathered_bytes(model.shape, 2) == 4 * (4096 + 4096 + 11008 + 4096));       // attention's outputs
  CHECK(gathered_bytes(model.shape, 64) == 4 * (3 * 4096 + 4096 + 11008 + 4096));  // more ranks than heads
}

TEST_CASE("ranks exchange four gathers per layer, and each receives the other ranks' parts") {
  const PlannedModel model = seven();
  const StepCost alone = step_cost(model, device, {}, 0, {});
  CHECK(alone.traffic == 0);
  CHECK(alone.messages == 0);
  CHECK(alone.message_seconds == 0);
  const double all = 32 * gathered_bytes(model.shape, 2) + 4 * (4096 + 32000);
  for (const int ranks : {2, 4}) {
    const StepCost cost = step_cost(model, device, {.tensor = ranks}, 0, {});
    CHECK(cost.messages == 4 * 32 + 3);  // the embedding, the logits, and the message that announces the step
    CHECK(cost.traffic == all * (ranks - 1) / ranks);
    CHECK(cost.message_seconds == Approx(cost.messages * 1e-5 + cost.traffic / 1e10));
    CHECK(step_cost(model, device, {.tensor = ranks}, 0, {.rows = 8, .outputs = 8}).traffic == 8 * cost.traffic);
  }
}

TEST_CASE("times follow from the device's figures") {
  const PlannedModel model = seven();
  const Load load{.sequences = 16, .context = 1024};
  for (const Layout layout : {Layout{}, Layout{.tensor = 4}, Layout{.stages = 4}, Layout{.tensor = 2, .stages = 2}}) {
    const double before = plan_of(model, device, layout, load).step_seconds;
    for (double PlanDevice::*figure : {&PlanDevice::bandwidth, &PlanDevice::arithmetic, &PlanDevice::link}) {
      PlanDevice faster = device;
      faster.*figure *= 2;
      CHECK(plan_of(model, faster, layout, load).step_seconds <= before);
    }
    for (double PlanDevice::*figure : {&PlanDevice::latency, &PlanDevice::launch}) {
      PlanDevice slower = device;
      slower.*figure *= 2;
      CHECK(plan_of(model, slower, layout, load).step_seconds >= before);
    }
    PlanDevice faster = device;
    faster.bandwidth *= 2;
    CHECK(plan_of(model, faster, layout, {.sequences = 1}).step_seconds <
          plan_of(model, device, layout, {}).step_seconds);
  }
  const StepCost few = step_cost(model, device, {}, 0, {}), many = step_cost(model, device, {}, 0, {4096, 4096, 1, 0});
  CHECK(few.memory_seconds == few.weight_bytes / 0.5e12);
  CHECK(std::string(few.bound()) == "memory");
  CHECK(std::string(many.bound()) == "arithmetic");
  CHECK(many.operations == 2 * 4096 * (32.0 * double(block_linear_count(model.shape)) + 32000.0 * 4096));
  CHECK(many.seconds() == many.arithmetic_seconds + many.launch_seconds);
}

TEST_CASE("replicas multiply tokens/s; a pipeline needs several sequences for speed") {
  const PlannedModel model = seven();
  const Plan one = plan_of(model, device, {}, {.sequences = 4}),
             four = plan_of(model, device, {.replicas = 4}, {.sequences = 16});
  CHECK(four.tokens_per_second == Approx(4 * one.tokens_per_second));
  CHECK(four.most_sequences == 4 * one.most_sequences);
  CHECK(four.weights == one.weights);

  const Plan staged = plan_of(model, device, {.stages = 4}, {.sequences = 1}), alone = plan_of(model, device, {}, {});
  CHECK(staged.tokens_per_second < alone.tokens_per_second);
  CHECK(plan_of(model, device, {.stages = 4}, {.sequences = 64}).tokens_per_second >
        2 * plan_of(model, device, {.stages = 4}, {.sequences = 1}).tokens_per_second);
}

TEST_CASE("a model that does not fit is reported") {
  const Load load{.sequences = 64, .context = 2048};
  const Plan whole = plan_of(planned_model("200B", "bf16"), device, {}, load);
  CHECK_FALSE(whole.fits);
  CHECK(whole.most_sequences == 0);
  const Plan seventh = plan_of(seven(), device, {}, load);
  CHECK(seventh.most_sequences == std::floor((0.9 * 64e9 - seventh.weights) / (2048 * 524288)));
  CHECK(seventh.fits == (seventh.most_sequences >= 64));
  // Split by heads; complete if there are more ranks than heads.
  CHECK(plan_of(seven(), device, {.tensor = 4}, load).cache == 16.0 * 2048 * 524288);
  CHECK(plan_of(seven(), device, {.tensor = 5}, load).cache == 14.0 * 2048 * 524288);
  CHECK(plan_of(seven(), device, {.tensor = 64}, load).cache == 64.0 * 2048 * 524288);
}

TEST_CASE("requests in flight follow Little's law") {
  const Load load{.sequences = 64, .context = 512, .requests_per_day = 86400, .prompt = 256, .answer = 256};
  const Plan plan = plan_of(seven(), device, {.replicas = 2}, load);
  CHECK(plan.in_flight == Approx(plan.request_seconds));  // one request per second
  CHECK(plan.requests_per_day * plan.request_seconds / 86400 == Approx(64));
  CHECK(plan.replicas_needed == std::ceil(2 * 86400 / plan.requests_per_day));
  CHECK(plan.request_seconds > 256 * plan.step_seconds);
}

TEST_CASE("layouts are all factorizations of the devices, restricted by the options") {
  const ModelConfig shape = seven().shape;
  CHECK(layouts_of(shape, 1, 0, 0).size() == 1);
  CHECK(layouts_of(shape, 8, 0, 0).size() == 10);
  for (const Layout& layout : layouts_of(shape, 24, 0, 0)) CHECK(layout.devices() == 24);
  CHECK(layouts_of(shape, 8, 3, 0).empty());
  REQUIRE(layouts_of(shape, 8, 2, 2).size() == 1);
  CHECK(layouts_of(shape, 8, 2, 2)[0].tensor == 2);
  CHECK(layouts_of(shape, 64, 1, 64).empty());  // more stages than layers
}

TEST_CASE("models that cannot be planned are rejected") {
  CHECK(error_id([] { planned_model("GPT-5", ""); }) == "bench.unknown-shape");
  CHECK(error_id([] { planned_model(fixture("models/mpt-alibi-3h").string(), "int4"); }) == "bench.no-int4");
  CHECK(int(parameter_count(planned_model("200B", "").shape, {}) / 1'000'000'000) == 199);
}

TEST_CASE("a rank's speed is measured and known to all ranks") {
  std::mutex mutex;
  std::vector<cli::RankSpeed> speeds;
  ranks::run_threads(2, [&](const ranks::Threads& ranks) {
    const cli::RankSpeed speed = cli::rank_speed(ranks, 1);
    const std::lock_guard lock(mutex);
    speeds.push_back(speed);
  });
  REQUIRE(speeds.size() == 2);
  for (double cli::RankSpeed::*figure :
       {&cli::RankSpeed::memory, &cli::RankSpeed::bandwidth, &cli::RankSpeed::arithmetic, &cli::RankSpeed::latency,
        &cli::RankSpeed::link}) {
    CHECK(speeds[0].*figure > 0);
    CHECK(speeds[0].*figure == speeds[1].*figure);
  }
  CHECK(cli::rank_speed(ranks::Alone{}, 1).latency == 0);
}
