// The operations of a layer one by one, as a model calls them: time, bytes read and share of the copy bandwidth.
// Weights are taken in turn from enough copies that no cache holds them. Launched one after the other without a graph:
// an operation shorter than a launch shows the launch.
//   bench-gpu_ops --benchmark_filter=Llama-2-7B
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu_device.hpp"
#include "bench/gpu_models.hpp"
#include "slm/config/known_models.hpp"
#include "slm/quant/format.hpp"

namespace {

using namespace slm;
using bench::Device;

constexpr int group = 128;
constexpr int position = bench::emulated ? 70 : 1024;
constexpr double cold_bytes = bench::emulated ? 0 : 256e6;

/// Random numbers on the host, of which every weight is a part.
struct Source {
  explicit Source(std::size_t elements) : dense(elements), codes(elements / 8) {
    std::mt19937 random(1);
    for (bfloat16_t& value : dense) value = from_float<bfloat16_t>(static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f);
    for (std::uint32_t& word : codes) word = static_cast<std::uint32_t>(random());
    zeros.assign(codes.size() / group, 0x88888888u);
    scales.assign(elements / group, from_float<half_t>(0.01f));
  }

  template <class T>
  static Tensor tensor(const std::vector<T>& data, DType type, std::int64_t rows, std::int64_t columns) {
    return {"weight",
            type,
            {rows, columns},
            reinterpret_cast<const std::byte*>(data.data()),
            static_cast<std::size_t>(rows * columns) * bytes_of(type)};
  }

  Device::Matrix<Bf16> pack(Device& device, Bf16, std::int64_t out, std::int64_t in) const {
    const Tensor weight = tensor(dense, DType::bf16, out, in);
    return device.pack<Bf16>(std::span<const Tensor>(&weight, 1));
  }
  Device::Matrix<AwqInt4<>> pack(Device& device, AwqInt4<>, std::int64_t out, std::int64_t in) const {
    const Tensor code = tensor(codes, DType::i32, in, out / 8), zero = tensor(zeros, DType::i32, in / group, out / 8),
                 scale = tensor(scales, DType::f16, in / group, out);
    const LinearSource source = Int4Tensor{.name = "weight",
                                           .layout = Int4Layout::awq_gemm,
                                           .out = out,
                                           .in = in,
                                           .group = group,
                                           .codes = &code,
                                           .scales = &scale,
                                           .zeros = &zero};
    return device.pack<AwqInt4<>>(std::span<const LinearSource>(&source, 1));
  }

  std::vector<bfloat16_t> dense;
  std::vector<std::uint32_t> codes, zeros;
  std::vector<half_t> scales;
};

template <class Format>
class Layer {
 public:
  using Matrix = Device::Matrix<Format>;

  Layer(const Device& device, const bench::Subject& subject)
      : device_(device),
        subject_(subject),
        probe_(device),
        heads_{subject.shape.heads, subject.shape.kv_heads, subject.shape.head_dim} {
    const ModelConfig& shape = subject.shape;
    q_width_ = shape.heads * shape.head_dim;
    const int widest = std::max({q_width_, shape.hidden, shape.ffn});
    for (Device::Buffer<float>* buffer : {&in_, &out_}) {
      const std::vector<float> numbers(static_cast<std::size_t>(Device::max_rows) * static_cast<std::size_t>(widest),
                                       0.5f);
      *buffer = device_.upload(numbers.data(), numbers.size());
    }
    const std::vector<float> ones(static_cast<std::size_t>(widest), 1.0f);
    norm_ = device_.upload(ones.data(), ones.size());
    frequency_ = device_.upload(ones.data(), static_cast<std::size_t>(shape.head_dim) / 2);
    const std::int64_t capacity = position + Device::max_rows;
    for (Device::Buffer<half_t>* buffer : {&keys_, &values_}) {
      *buffer = device_.allocate<half_t>(static_cast<std::size_t>(shape.kv_heads * capacity * shape.head_dim));
    }
    cache_ = {{keys_.data(), shape.kv_heads, capacity, shape.head_dim},
              {values_.data(), shape.kv_heads, capacity, shape.head_dim}};
  }

  void run(benchmark::State& state, const std::string& operation, int rows) {
    const ModelConfig& shape = subject_.shape;
    const Norm norm{.weight = norm_.data(), .epsilon = 1e-5f};
    const int kv_width = shape.kv_heads * shape.head_dim;
    if (operation == "qkv") {
      const Rope rope{.inverse_frequency = frequency_.data()};
      each(state, rows, q_width_ + 2 * kv_width, shape.hidden, [&](const Matrix& weight) {
        device_.qkv(input(rows, shape.hidden), norm, weight, nullptr, rope, heads_, position, output(rows, q_width_),
                    cache_);
      });
    } else if (operation == "attend") {
      const double bytes = 2.0 * 2 * kv_width * (position + rows);
      time(state, rows, bytes,
           [&](int) { device_.attend(input(rows, q_width_), heads_, position, cache_, output(rows, q_width_)); });
    } else if (operation == "project") {
      each(state, rows, shape.hidden, q_width_, [&](const Matrix& weight) {
        device_.project(input(rows, q_width_), weight, nullptr, output(rows, shape.hidden));
      });
    } else if (operation == "gated_mlp") {
      each(state, rows, 2 * shape.ffn, shape.hidden, [&](const Matrix& weight) {
        device_.gated_mlp(input(rows, shape.hidden), norm, weight, nullptr, output(rows, shape.ffn));
      });
    } else if (operation == "down") {
      each(state, rows, shape.hidden, shape.ffn, [&](const Matrix& weight) {
        device_.project(input(rows, shape.ffn), weight, nullptr, output(rows, shape.hidden));
      });
    }
  }

 private:
  View<const float, 2> input(int rows, int width) { return View<float, 2>{in_.data(), rows, width}; }
  View<float, 2> output(int rows, int width) { return {out_.data(), rows, width}; }

  /// A product with weights [out, in], one copy after the other.
  template <class Action>
  void each(benchmark::State& state, int rows, int out, int in, Action&& action) {
    static std::unique_ptr<Source> source;  // random numbers take a while; the largest serves all
    const auto elements = static_cast<std::size_t>(out) * static_cast<std::size_t>(in);
    if (!source || source->dense.size() < elements) source = std::make_unique<Source>(elements);
    std::vector<Matrix> weights;
    weights.push_back(source->pack(device_, Format{}, out, in));
    const double bytes = static_cast<double>(weights.front().bytes());
    while (weights.size() < 16 && static_cast<double>(weights.size()) * bytes < cold_bytes) {
      weights.push_back(source->pack(device_, Format{}, out, in));
    }
    time(state, rows, bytes, [&](int i) { action(weights[static_cast<std::size_t>(i) % weights.size()]); });
  }

  template <class Action>
  void time(benchmark::State& state, int rows, double bytes, Action&& action) {
    const int calls = bench::emulated ? 1 : 32;
    action(0);
    device_.synchronize();
    std::vector<double> times, probes;
    for (auto _ : state) {
      probes.push_back(probe_());
      const double start = bench::seconds();
      for (int i = 0; i < calls; ++i) action(i);
      device_.synchronize();
      times.push_back((bench::seconds() - start) / calls);
      state.SetIterationTime(times.back());
    }
    bench::report(state, times, probes, rows, bytes);
  }

  Device device_;
  bench::Subject subject_;
  bench::CopyProbe probe_;
  Heads heads_;
  int q_width_ = 0;
  Device::Buffer<float> in_, out_, norm_, frequency_;
  Device::Buffer<half_t> keys_, values_;
  KvLayer<half_t> cache_;
};

template <class Format>
void add(const Device& device, const bench::Subject& subject) {
  const auto layer = std::make_shared<std::unique_ptr<Layer<Format>>>();
  const std::vector<int> row_counts = bench::emulated ? std::vector<int>{1} : std::vector<int>{1, 5, Device::max_rows};
  for (const int rows : row_counts) {
    for (const char* operation : {"qkv", "attend", "project", "gated_mlp", "down"}) {
      const std::string name = text("op-", operation, "/", subject.name, "/", subject.format(), "/rows:", rows);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [layer, device, subject, operation = std::string(operation), rows](benchmark::State& state) {
            if (!*layer) *layer = std::make_unique<Layer<Format>>(device, subject);
            (*layer)->run(state, operation, rows);
          })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->Iterations(bench::emulated ? 1 : 11);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return slm::bench::run(argc, argv, [](const Device& device) {
    const ModelConfig tiny{
        .layers = 1, .hidden = 256, .ffn = 384, .heads = 4, .kv_heads = 2, .head_dim = 64, .vocab = 512};
    std::vector<bench::Subject> subjects = {{"AMD-Llama-135M", configs::AmdLlama_135M::value},
                                            {"Llama-3.2-1B", configs::Llama32_1B::value},
                                            {"Llama-2-7B", configs::Llama2_7B::value}};
    if (bench::emulated) subjects = {{"tiny", tiny}};
    for (bench::Subject subject : subjects) {
      add<Bf16>(device, subject);
      subject.int4 = true;
      add<AwqInt4<>>(device, subject);
    }
  });
}
