// The products of a prefill with cuBLAS, in bf16 with fp32 sums, as a reference for the prefill's FLOP/s. Only for
// builds with cuBLAS.
#pragma once

#include <cublas_v2.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/device/harness.hpp"
#include "bench/device/random_weights.hpp"

namespace slm::bench {

template <class Target>
class BlasTable {
 public:
  BlasTable(Target& target, Harness& harness)
      : target_(target), harness_(harness), device_(target.open("bf16")), stream_(device_.runtime().make_stream()) {
    require(cublasCreate(&handle_), "cublasCreate");
    require(cublasSetStream(handle_, stream_.handle()), "cublasSetStream");
  }
  BlasTable(const BlasTable&) = delete;
  BlasTable& operator=(const BlasTable&) = delete;
  ~BlasTable() { cublasDestroy(handle_); }

  void add(const Subject& subject) {
    if (subject.int4()) return;
    harness_.add("blas-prefill", subject, Target::prefill, 7, subject.bytes() * 70,
                 [this, subject](benchmark::State& state, Result& result) { prefill(state, subject, result); });
  }

 private:
  using Runtime = typename Target::Backend::Runtime;

  static void require(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) throw Error(text(call, " failed with ", static_cast<int>(status)));
  }

  /// Device memory with random numbers.
  struct Numbers {
    Numbers(const Runtime& of, typename Runtime::Stream& stream, std::size_t count)
        : runtime(of), memory(runtime.allocate(count * sizeof(bfloat16_t))) {
      RandomWeights source(DType::bf16, false, count, RandomWeights::group * std::size_t{8}, 1.0f);
      const Tensor tensor = source.dense("numbers", {static_cast<std::int64_t>(count)});
      runtime.copy_in(memory, tensor.bytes, tensor.size_bytes, stream);
      runtime.synchronize(stream);
    }
    Numbers(const Numbers&) = delete;
    Numbers& operator=(const Numbers&) = delete;
    ~Numbers() { runtime.release(memory); }

    Runtime runtime;
    void* memory;
  };

  /// The four products of a layer, rows x in times in x out, once per layer.
  void prefill(benchmark::State& state, const Subject& subject, Result& result) {
    const ModelConfig& shape = subject.shape;
    const int rows = result.rows;
    const int q = shape.heads * shape.head_dim, qkv = q + 2 * shape.kv_heads * shape.head_dim;
    const std::vector<std::pair<int, int>> products = {
        {qkv, shape.hidden}, {shape.hidden, q}, {2 * shape.ffn, shape.hidden}, {shape.hidden, shape.ffn}};
    std::size_t weight = 0, input = 0, output = 0;
    for (const auto& [out, in] : products) {
      weight = std::max(weight, std::size_t(out) * std::size_t(in));
      input = std::max(input, std::size_t(in) * std::size_t(rows));
      output = std::max(output, std::size_t(out) * std::size_t(rows));
    }
    const Runtime& runtime = device_.runtime();
    const Numbers w(runtime, stream_, weight), x(runtime, stream_, input), y(runtime, stream_, output);
    const float one = 1, zero = 0;
    const auto multiply = [&] {
      for (int l = 0; l < shape.layers; ++l) {
        for (const auto& [out, in] : products) {
          require(
              cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, out, rows, in, &one, w.memory, CUDA_R_16BF, in, x.memory,
                           CUDA_R_16BF, in, &zero, y.memory, CUDA_R_16BF, out, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
        }
      }
      device_.runtime().synchronize(stream_);
    };
    multiply();
    ProbedSamples samples;
    for (auto _ : state) state.SetIterationTime(samples.measure(target_.probe(), multiply));
    conclude(result, samples, 2 * subject.layer_products());
    result.numbers["tokens_per_second"] = rows / result.seconds;
    result.numbers["flop_per_second"] = 2 * subject.layer_products() * rows / result.seconds;
  }

  Target& target_;
  Harness& harness_;
  typename Target::Backend device_;
  typename Runtime::Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace slm::bench
