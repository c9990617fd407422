// Models over ranks with one GPU each, on emulated lanes of both widths: logits, hidden states, tokens and
// log-probabilities have the bits of one device, and a failure on a rank is an error on all ranks.
#include <chrono>
#include <string>

#include "slm/adapters.hpp"
#include "support/adapted_texts.hpp"
#include "support/errors.hpp"
#include "support/gpu_ranks.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("every family on 32 lanes: any number of devices gives the bits of one", "[long]") {
  int turn = 0;
  for (const std::string& name : folders)
    check_devices<Queued32>(fixture("models/" + name), {Ranks{2 + turn++ % 3}}, answers);
  check_devices<Queued32>(fixture("models/llama3-gqa-scaled-tied"), {{1}, {2}, {3}, {4}}, answers);
}

TEST_CASE("families of every kind on 64 lanes: any number of devices gives the bits of one") {
  int turn = 0;
  for (const char* name : {"llama-bias", "qwen3-qknorm-headdim", "phi-partial", "gpt2", "opt-postln-proj",
                           "mpt-foundry-gqa-qkgn-swa", "mosaicgpt-wpe-bias-clip"})
    check_devices<Queued64>(fixture(text("models/", name)), {Ranks{2 + turn++ % 3}}, answers);
}

TEST_CASE("pipeline stages on devices give the bits of one device", "[long]") {
  for (const char* name : {"llama-bias", "opt-postln-proj"})
    check_devices<Queued32>(fixture(text("models/", name)), {{2, 2}, {4, 2}}, answers);
  check_devices<Queued64>(demo_pair("target"), {{3, 3}, {4, 2}}, answers);
}

TEST_CASE("mixtures of experts on devices give the bits of one device") {
  check_devices<Queued32>(fixture("models/granitemoeshared"), {{2}}, answers);
  check_devices<Queued64>(fixture("models/gpt-oss-trunc"), {{3}}, answers);
}

TEST_CASE("mixtures of experts of other kinds, and pipeline stages of them, give the bits of one device", "[long]") {
  for (const char* name : {"qwen3moe", "qwen2moe-dense-layers", "phimoe", "nemotron-h-moe", "lfm2moe", "qwen3next"}) {
    check_devices<Queued32>(fixture(text("models/", name)), {{3}, {2, 2}, {3, 2, true}}, answers);
    check_devices<Queued64>(fixture(text("models/", name)), {{2}}, answers);
  }
}

TEST_CASE("recurrent layers on devices, also of pipeline stages, give the bits of one device") {
  check_devices<Queued32>(fixture("models/lfm2"), {{2, 2}}, answers);
  check_devices<Queued64>(fixture("models/qwen35-text"), {{3, 1, true}}, answers);
  check_devices<Queued64>(fixture("models/falcon-h1"), {{2}}, answers);
}

TEST_CASE("layers of different shapes, residual streams and latent attention on devices give the bits of one device") {
  check_devices<Queued32>(fixture("models/gemma4-moe"), {{2, 2}}, answers);
  check_devices<Queued64>(fixture("models/gemma3n"), {{2}}, answers);
  check_devices<Queued32>(fixture("models/deepseek-v3"), {{3, 1, true}}, answers);
}

TEST_CASE("a model without a part on the first rank has the bits of one device") {
  check_devices<Queued32>(fixture("models/llama-bias"), {{2, 1, true}, {3, 1, true}, {3, 2, true}}, answers);
  check_devices<Queued64>(demo_pair("target"), {{3, 1, true}}, answers);
}

TEST_CASE("four-bit layers and a cache of int8: any number of devices gives the bits of one") {
  check_devices<Queued32>(demo_pair("target-int4"), {{3}}, answers, {}, {.cache_format = KvFormat::int8});
}

TEST_CASE("four-bit layers, blocks and caches of other formats: devices give the bits of one", "[long]") {
  const LoadOptions as_stored{};
  check_devices<Queued32>(demo_pair("target-int4"), {{2}, {4}}, answers, as_stored);
  check_devices<Queued64>(demo_pair("target-int4"), {{3}}, answers, as_stored);
  check_devices<Queued32>(fixture("gguf/all-types.gguf"), {{2}, {4}}, answers, as_stored,
                          {.cache_format = KvFormat::bf16});
  const TemporaryFolder folder;
  write_quantized_checkpoint(fixture("models/llama-bias"), folder.path(),
                             {.layout = Int4Layout::packed_rows, .group = 8, .symmetric = true});
  check_devices<Queued64>(folder.path(), {{2}}, answers, as_stored);
}

TEST_CASE("prompts with more rows than recorded steps have the bits of one device", "[long]") {
  const auto read = [](const AnyModel&, const AnyModel& model) {
    Bits bits;
    Sequence texts[] = {model.sequence(), model.sequence()};
    Batch batch;
    for (const int more : {9, 150}) {
      batch.clear();
      for (std::uint64_t i = 0; i < 2; ++i)
        batch.add(texts[i], some_tokens(6 + i, more, model.info().vocab), {.result = RowResult::logits, .rows = 5});
      model.forward(batch);
      for (int i = 0; i < 2; ++i) bits.add(batch.logits(i).data, batch.logits(i).size());
    }
    return bits;
  };
  check_devices<Queued32>(demo_pair("target"), {{2}, {3}, {2, 2}}, read);
}

TEST_CASE("adapters of every type are split over devices, with the bits of one") {
  for (const char* name : {"llama-bias", "gpt2", "opt-postln-proj"}) {
    const Checkpoint checkpoint(fixture(text("models/", name)));
    const auto read = [&](const AnyModel&, const AnyModel& model) {
      Bits bits;
      std::uint64_t seed = 5;
      for (const DType type : {DType::f32, DType::bf16}) {
        const TemporaryFolder folder;
        write_random_adapter(folder.path(), checkpoint, {.seed = ++seed, .size = 0.5f, .type = type});
        const AdapterRef adapter = load_adapter(folder.path(), model);
        for (const auto& row : logits_alone(model, some_tokens(seed, 12, model.info().vocab), adapter))
          bits.add(row.data(), static_cast<std::int64_t>(row.size()));
      }
      return bits;
    };
    check_devices<Queued32>(checkpoint.folder(), {{2}, {3}}, read);
    check_devices<Queued64>(checkpoint.folder(), {{4}}, read);
  }
}

TEST_CASE("any NCCL failure during loading or a step is an error of its rank, reported to all ranks") {
  std::vector<fake::nccl::Fault> faults;
  for (const int rank : {0, 1}) {
    for (const char* function : {"ncclGetVersion", "ncclCommInitRankConfig", "ncclGroupStart", "ncclGroupEnd"})
      faults.push_back({function, rank});
    for (const int spared : {0, 5, 40}) {
      for (const bool later : {false, true}) {
        faults.push_back({"ncclAllGather", rank, ncclInternalError, later, {}, spared});
        faults.push_back({"ncclBroadcast", rank, ncclUnhandledCudaError, later, {}, spared});
      }
      faults.push_back({"ncclCommGetAsyncError", rank, ncclSystemError, false, {}, 3 * spared});
    }
  }
  int met = 0;
  for (const auto& fault : faults) {
    for (const bool peers_notice : {true, false}) {
      INFO(fault.function << " on rank " << fault.rank << " after " << fault.spared << (fault.later ? ", later" : ""));
      const Fresh fresh;
      blind_waits = 0;
      fake::nccl::library().faults = {fault};
      fake::nccl::library().peers_notice = peers_notice;
      const auto ends = on_devices<Queued32>({3}, [](const auto& load_here) {
        Bits bits;
        read_texts(load_here(fixture("models/llama-mha3h"), LoadOptions{}), bits);
      });
      const End& end = ends[static_cast<std::size_t>(fault.rank)];
      INFO(end.sentence);
      CHECK(blind_waits == 0);
      if (end.id == "no error") {  // fewer calls than that
        for (const End& other : ends) CHECK(other.sentence == "");
        continue;
      }
      CHECK(end.id == "ranks.nccl");
      CHECK(end.says("rank " + std::to_string(fault.rank) + ": "));
      check_others_know(ends, fault.rank);
      ++met;
    }
  }
  CHECK(met > 40);
}

TEST_CASE("a lost device in a step, and an NCCL call that never ends, are errors on all ranks") {
  const auto read = [](const auto& load_here) {
    Bits bits;
    read_texts(load_here(fixture("models/llama-mha3h"), LoadOptions{}), bits);
  };
  SECTION("lost") {
    const Fresh fresh;
    lost_device = 1;
    const auto ends = on_devices<Queued32>({3}, read);
    lost_device = -1;
    CHECK(ends[1].id == "gpu.failed");
    check_others_know(ends, 1);
  }
  SECTION("never ends") {
    const Fresh fresh;
    fake::nccl::library().hangs = true;
    const auto ends = on_devices<Queued32>({2}, read, patience);
    for (const End& end : ends) CHECK((end.id == "ranks.nccl" || end.id == "ranks.failed"));
  }
  CHECK(blind_waits == 0);
}
