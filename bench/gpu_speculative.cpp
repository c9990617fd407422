// Plain against speculative decoding of the embedded pair (examples/demo_pair) on the GPU, in one run: greedy, and the
// texts must be equal.
//   bench-gpu_speculative
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/gpu_device.hpp"
#include "slm/speculative.hpp"

namespace {

using namespace slm;

const std::filesystem::path pair_folder = std::filesystem::path{SLM_SOURCE_DIR} / "examples" / "demo_pair";
const std::vector<std::string> prompts = {"def add(a, b):\n", "class Reader:\n    def __init__(self",
                                          "import os\n\ndef "};
constexpr int new_tokens = bench::emulated ? 6 : 128;

struct Pair {
  explicit Pair(const bench::Device& the_device)
      : device(the_device),
        tokenizer(Tokenizer::from(pair_folder / "target")),
        probe(device),
        plain{load<Registry<>>(pair_folder / "target", device)} {}

  bench::Device device;
  Tokenizer tokenizer;
  bench::CopyProbe probe;
  AutoregressiveDecoder<AnyModel> plain;

  /// Seconds and tokens of all prompts.
  template <class Decoder>
  double generate(Decoder& decoder, std::vector<Token>& tokens, double& rounds) {
    const Sampling sampling{.max_new_tokens = new_tokens, .temperature = 0.0f, .ignore_end_tokens = true};
    double took = 0;
    for (const std::string& prompt : prompts) {
      const Stats stats =
          decoder.generate(tokenizer.encode(prompt), sampling, [&](Token token) { tokens.push_back(token); });
      took += stats.total_seconds;
      rounds += static_cast<double>(stats.rounds);
    }
    return took;
  }

  void speculative(benchmark::State& state, int lookahead) {
    SpeculativeDecoder decoder{load<Registry<>>(pair_folder / "draft", device),
                               load<Registry<>>(pair_folder / "target", device),
                               {.draft_tokens = lookahead}};
    std::vector<double> times, probes, plain_times;
    bool identical = true;
    double rounds = 0, plain_rounds = 0, emitted = 0;
    for (auto _ : state) {
      std::vector<Token> expected, found;
      probes.push_back(probe());
      plain_times.push_back(generate(plain, expected, plain_rounds) / static_cast<double>(expected.size()));
      const double took = generate(decoder, found, rounds);
      times.push_back(took / static_cast<double>(found.size()));
      emitted += static_cast<double>(found.size());
      identical = identical && expected == found;
      state.SetIterationTime(took);
    }
    if (!identical) state.SkipWithError("speculative output differs from plain output");
    bench::report(state, times, probes, 1, 0);
    state.counters["draft_tokens"] = lookahead;
    state.counters["tokens/s"] = 1 / bench::median(times);
    state.counters["plain_tokens/s"] = 1 / bench::median(plain_times);
    state.counters["speedup"] = bench::median(plain_times) / bench::median(times);
    state.counters["tokens/target_step"] = rounds > 0 ? emitted / rounds : 0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Pair> pair;
  return slm::bench::run(argc, argv, [&](const slm::bench::Device& device) {
    if (!std::filesystem::exists(pair_folder / "draft" / "model.safetensors")) {
      std::cerr << "SKIPPED: examples/demo_pair has no weights\n";
      return;
    }
    pair = std::make_unique<Pair>(device);
    for (const int lookahead : {2, 4, 6}) {
      const std::string name = "speculative/demo_pair/bf16/lookahead:" + std::to_string(lookahead);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&pair, lookahead](benchmark::State& state) { pair->speculative(state, lookahead); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond)
          ->Iterations(slm::bench::emulated ? 1 : 5);
      if (slm::bench::emulated) break;
    }
  });
}
