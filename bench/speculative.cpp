// Plain against speculative decoding on the embedded pair (examples/demo_pair), interleaved in one run.
//   build/cpu/bin/bench-speculative
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "bench/bandwidth.hpp"
#include "slm/speculative.hpp"

namespace {

using namespace slm;

const std::filesystem::path pair_folder = std::filesystem::path{SLM_SOURCE_DIR} / "examples" / "demo_pair";

std::vector<std::vector<Token>> prompts(const Tokenizer& tokenizer) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(pair_folder / "prompts")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::vector<Token>> result;
  for (const auto& path : files) {
    std::ifstream file(path);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    result.push_back(tokenizer.encode(content));
  }
  return result;
}

void speculative(benchmark::State& state) {
  const int lookahead = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  if (!std::filesystem::exists(pair_folder / "draft" / "model.safetensors")) {
    state.SkipWithError("examples/demo_pair has no weights");
    return;
  }
  const Tokenizer tokenizer = Tokenizer::from(pair_folder / "target");
  backend::Cpu device{threads};
  AutoregressiveDecoder plain{load(pair_folder / "target", device)};
  SpeculativeDecoder decoder{
      load(pair_folder / "draft", device), load(pair_folder / "target", device), {.draft_tokens = lookahead}};
  const Sampling sampling{.max_new_tokens = 96, .temperature = 0.0f, .ignore_end_tokens = true};
  std::vector<double> plain_rates, rates, speedups;
  double drafted = 0, accepted = 0, emitted = 0, rounds = 0;
  bool identical = true;
  const auto all_prompts = prompts(tokenizer);
  for (auto _ : state) {
    double plain_seconds = 0, fast_seconds = 0, plain_tokens = 0, fast_tokens = 0;
    for (const std::vector<Token>& prompt : all_prompts) {
      std::vector<Token> expected, found;
      const Stats slow = plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
      const Stats fast = decoder.generate(prompt, sampling, [&](Token token) { found.push_back(token); });
      identical = identical && expected == found;
      plain_seconds += slow.total_seconds;
      fast_seconds += fast.total_seconds;
      plain_tokens += static_cast<double>(expected.size());
      fast_tokens += static_cast<double>(found.size());
      drafted += static_cast<double>(fast.drafted);
      accepted += static_cast<double>(fast.accepted);
      emitted += static_cast<double>(fast.emitted);
      rounds += static_cast<double>(fast.rounds);
    }
    state.SetIterationTime(fast_seconds);
    plain_rates.push_back(plain_tokens / plain_seconds);
    rates.push_back(fast_tokens / fast_seconds);
    speedups.push_back(rates.back() / plain_rates.back());
  }
  if (!identical) state.SkipWithError("speculative output differs from plain output");
  state.counters["plain_tokens/s"] = bench::median(plain_rates);
  state.counters["tokens/s"] = bench::median(rates);
  state.counters["speedup"] = bench::median(speedups);
  state.counters["acceptance"] = drafted > 0 ? accepted / drafted : 0;
  state.counters["tokens/target_step"] = rounds > 0 ? emitted / rounds : 0;
}

void arguments(benchmark::internal::Benchmark* bench) {
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const int threads : {1, all}) {
    for (const int lookahead : {2, 4, 6, 8}) bench->Args({lookahead, threads});
    if (all == 1) break;
  }
  bench->ArgNames({"lookahead", "threads"})->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}

BENCHMARK(speculative)->Apply(arguments);

}  // namespace

BENCHMARK_MAIN();
