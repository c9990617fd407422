// The products of a prefill by the vendor's own library, in bf16 with fp32 sums: what the TFLOP/s of bench-gpu_model
// are seen beside. Built where cuBLAS is found.
//   bench-gpu_blas
#include <benchmark/benchmark.h>
#include <cublas_v2.h>

#include <string>
#include <vector>

#include "bench/gpu_device.hpp"
#include "bench/gpu_models.hpp"
#include "slm/config/known_models.hpp"

namespace {

using namespace slm;

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(text(call, " failed with ", static_cast<int>(status)));
}

class Blas {
 public:
  explicit Blas(const bench::Device& device)
      : runtime_(device.runtime()), probe_(device), stream_(runtime_.make_stream()) {
    require(cublasCreate(&handle_), "cublasCreate");
    require(cublasSetStream(handle_, stream_.handle()), "cublasSetStream");
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() { cublasDestroy(handle_); }

  /// The four products of a layer, rows x in times in x out, as often as the model has layers.
  void prefill(benchmark::State& state, const bench::Subject& subject, int rows) {
    const ModelConfig& shape = subject.shape;
    const int q = shape.heads * shape.head_dim, qkv = q + 2 * shape.kv_heads * shape.head_dim;
    const std::vector<std::pair<int, int>> products = {
        {qkv, shape.hidden}, {shape.hidden, q}, {2 * shape.ffn, shape.hidden}, {shape.hidden, shape.ffn}};
    std::size_t weight = 0, input = 0, output = 0;
    for (const auto& [out, in] : products) {
      weight = std::max(weight, std::size_t(out) * std::size_t(in));
      input = std::max(input, std::size_t(in) * std::size_t(rows));
      output = std::max(output, std::size_t(out) * std::size_t(rows));
    }
    void* const w = random_numbers(weight);
    void* const x = random_numbers(input);
    void* const y = runtime_.allocate(output * 2);
    const float one = 1, zero = 0;
    const double bytes = 2 * subject.layer_products();
    bench::measure(state, probe_, rows, bytes, [&] {
      for (int l = 0; l < shape.layers; ++l) {
        for (const auto& [out, in] : products) {
          require(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, out, rows, in, &one, w, CUDA_R_16BF, in, x,
                               CUDA_R_16BF, in, &zero, y, CUDA_R_16BF, out, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                  "cublasGemmEx");
        }
      }
      runtime_.synchronize(stream_);
    });
    state.counters["TFLOP/s"] = 2e-12 * subject.layer_products() * rows / state.counters["seconds"];
    for (void* const memory : {w, x, y}) runtime_.release(memory);
  }

 private:
  void* random_numbers(std::size_t count) {
    std::vector<bfloat16_t> numbers(count);
    std::uint32_t state = 1;
    for (bfloat16_t& number : numbers) {
      state = state * 1664525u + 1013904223u;
      number = from_float<bfloat16_t>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
    }
    void* const memory = runtime_.allocate(count * sizeof(bfloat16_t));
    runtime_.copy_in(memory, numbers.data(), count * sizeof(bfloat16_t), stream_);
    runtime_.synchronize(stream_);
    return memory;
  }

  bench::Runtime runtime_;
  bench::CopyProbe probe_;
  bench::Runtime::Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Blas> blas;
  return slm::bench::run(argc, argv, [&](const slm::bench::Device& device) {
    blas = std::make_unique<Blas>(device);
    for (const slm::bench::Subject& subject :
         {slm::bench::Subject{"AMD-Llama-135M", slm::configs::AmdLlama_135M::value},
          slm::bench::Subject{"Llama-3.2-1B", slm::configs::Llama32_1B::value},
          slm::bench::Subject{"Llama-2-7B", slm::configs::Llama2_7B::value}}) {
      benchmark::RegisterBenchmark(("blas/" + subject.name + "/bf16/rows:2048").c_str(),
                                   [&blas, subject](benchmark::State& state) { blas->prefill(state, subject, 2048); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->Iterations(7);
    }
  });
}
