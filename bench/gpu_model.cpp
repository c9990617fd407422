// Whole models on the GPU, of published shapes with random weights: the time of a decode step and its share of the
// bandwidth that a copy reaches in the same run, what verifying n tokens costs beside one, and prefill.
//   bench-gpu_model --benchmark_filter=decode/AMD-Llama-135M
#include <benchmark/benchmark.h>

#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/gpu_device.hpp"
#include "bench/gpu_models.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/load.hpp"

namespace {

using namespace slm;

constexpr int prompt_tokens = bench::emulated ? 8 : 64;
constexpr int prefill_tokens = bench::emulated ? 40 : 2048;
constexpr int context = prefill_tokens + 16;
constexpr int most_rows = bench::emulated ? 3 : 9;

std::vector<bench::Subject> subjects() {
  if (bench::emulated) {
    const ModelConfig tiny{
        .layers = 2, .hidden = 256, .ffn = 384, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 512};
    return {{"tiny", tiny, false}, {"tiny", tiny, true}};
  }
  return {
      {"AMD-Llama-135M", configs::AmdLlama_135M::value, false}, {"AMD-Llama-135M", configs::AmdLlama_135M::value, true},
      {"Llama-3.2-1B", configs::Llama32_1B::value, false},      {"Llama-3.2-1B", configs::Llama32_1B::value, true},
      {"Llama-2-7B", configs::Llama2_7B::value, false},         {"Llama-2-7B", configs::Llama2_7B::value, true}};
}

std::vector<Token> some_tokens(int count, int vocab) {
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>(i * 7919 % static_cast<std::size_t>(vocab));
  return tokens;
}

/// One model at a time is on the device; benchmarks of one subject stand together.
class Bench {
 public:
  explicit Bench(const bench::Device& device) : device_(device), probe_(device) {}

  AnyModel& model(const bench::Subject& subject) {
    if (!model_ || name_ != subject.name + subject.format()) {
      model_.reset();
      const bench::RandomModel files(subject, context);
      model_.emplace(load<Registry<>>(files.folder(), device_, {.context = context}));
      name_ = subject.name + subject.format();
    }
    return *model_;
  }

  /// Extends by n tokens with all their logits, beside one-token steps in the same run: v(n) = time(n) / time(1).
  void decode(benchmark::State& state, const bench::Subject& subject, int rows) {
    AnyModel& model = this->model(subject);
    const std::vector<Token> tokens = some_tokens(prompt_tokens + rows, subject.shape.vocab);
    const std::span<const Token> all(tokens);
    model.truncate(0);
    model.extend(all.first(prompt_tokens), 0);
    const auto step = [&](int count) {
      const double start = bench::seconds();
      model.extend(all.subspan(prompt_tokens, static_cast<std::size_t>(count)), count);
      const double took = bench::seconds() - start;
      model.truncate(prompt_tokens);
      return took;
    };
    for (int i = 0; i < 3; ++i) step(rows), step(1);
    std::vector<double> times, ratios, probes;
    for (auto _ : state) {
      probes.push_back(probe_());
      times.push_back(step(rows));
      ratios.push_back(times.back() / step(1));
      state.SetIterationTime(times.back());
    }
    bench::report(state, times, probes, rows, static_cast<double>(model.info().step_bytes));
    state.counters["tokens/s"] = rows / bench::median(times);
    state.counters["v(n)"] = bench::median(ratios);
  }

  void prefill(benchmark::State& state, const bench::Subject& subject) {
    AnyModel& model = this->model(subject);
    const std::vector<Token> tokens = some_tokens(prefill_tokens, subject.shape.vocab);
    bench::measure(state, probe_, prefill_tokens, static_cast<double>(model.info().step_bytes), [&] {
      model.truncate(0);
      model.extend(tokens, 1);
    });
    state.counters["tokens/s"] = prefill_tokens / state.counters["seconds"];
    state.counters["TFLOP/s"] = 2e-12 * subject.layer_products() * prefill_tokens / state.counters["seconds"];
  }

 private:
  bench::Device device_;
  bench::CopyProbe probe_;
  std::optional<AnyModel> model_;
  std::string name_;
};

}  // namespace

int main(int argc, char** argv) {
  std::optional<Bench> bench;
  return slm::bench::run(argc, argv, [&](const slm::bench::Device& device) {
    bench.emplace(device);
    for (const slm::bench::Subject& subject : subjects()) {
      const std::string name = subject.name + "/" + subject.format();
      if (const auto free = static_cast<double>(device.runtime().memory_free()); subject.bytes() * 1.2 > free) {
        std::cerr << "SKIPPED: " << name << " needs " << subject.bytes() * 1.2e-9 << " GB, " << free * 1e-9
                  << " GB are free\n";
        continue;
      }
      const auto add = [&](const std::string& of, int iterations, auto body) {
        benchmark::RegisterBenchmark(of.c_str(), body)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(iterations);
      };
      const int samples = slm::bench::emulated ? 1 : 25;
      for (int rows = 1; rows <= most_rows; ++rows) {
        add("decode/" + name + "/rows:" + std::to_string(rows), samples,
            [&bench, subject, rows](benchmark::State& state) { bench->decode(state, subject, rows); });
      }
      add("prefill/" + name + "/rows:" + std::to_string(prefill_tokens), slm::bench::emulated ? 1 : 7,
          [&bench, subject](benchmark::State& state) { bench->prefill(state, subject); });
    }
  });
}
