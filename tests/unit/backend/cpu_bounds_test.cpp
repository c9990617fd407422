// The kernels read nothing after a weight row or a KV row: memory ends at an inaccessible page. The last row of a
// mapped checkpoint may end at the end of the mapping.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/fenced.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using testing::Fenced;
using namespace slm::testing;
using backend::Cpu;
using backend::DenseActivations;
using backend::Isa;

namespace {

template <class Format>
void check_matrix(Isa isa, int out, int in, DenseActivations activations = DenseActivations::exact) {
  RandomTensor<Format> random(out, in, 3);
  const Fenced fenced(random.tensor.size_bytes);
  std::memcpy(fenced.data(), random.tensor.bytes, random.tensor.size_bytes);
  const Tensor tensor{"w", Format::dtype, {out, in}, fenced.data(), random.tensor.size_bytes};
  const std::vector<Tensor> tensors{tensor};
  Cpu device{{.threads = 2, .isa = isa, .dense_activations = activations}};
  const auto weight = device.pack<Format>(tensors);
  REQUIRE(reinterpret_cast<const std::byte*>(weight.row(0)) == fenced.data());
  for (const int rows : {1, 5, 9, 40}) {
    const std::size_t x_size = static_cast<std::size_t>(rows * in) * sizeof(float);
    const Fenced x(x_size), y(static_cast<std::size_t>(rows * out) * sizeof(float));
    const std::vector<float> values = Random(4).vector(static_cast<std::size_t>(rows * in));
    std::memcpy(x.data(), values.data(), x_size);
    float* result = reinterpret_cast<float*>(y.data());
    device.begin({}).project(View<const float, 2>{reinterpret_cast<const float*>(x.data()), rows, in}, Linear{weight},
                             View<float, 2>{result, rows, out});
    double sum = 0;
    for (int i = 0; i < rows * out; ++i) sum += result[i];
    REQUIRE(std::isfinite(sum));
  }
}

}  // namespace

TEST_CASE("no kernel reads after the last weight") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  for (const int in : {1, 2, 15, 16, 17, 31, 33, 48, 63, 65, 97, 128, 769}) {
    for (const int out : {1, 3, 8, 37}) {
      CAPTURE(in, out, name_of(isa));
      check_matrix<Fp32>(isa, out, in);
      for (const auto activations : {DenseActivations::exact, DenseActivations::bf16x2, DenseActivations::bf16}) {
        check_matrix<Bf16>(isa, out, in, activations);
      }
      check_matrix<Fp16>(isa, out, in);
    }
  }
}

TEST_CASE("attention and rotation stay inside rows of any width, in every format of the cache") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const KvFormat format = GENERATE(from_range(kv_formats));
  for (const int dim : {2, 6, 16, 30, 64, 80, 98, 1024}) {
    const Heads heads{4, 2, dim};
    const int context = 70, rows = 5, position = context - rows;
    const auto half = static_cast<std::size_t>(heads.kv * kv_head_bytes(format, dim));  // keys of a page
    const Fenced first(2 * half), second(2 * half);
    const std::size_t q_size = static_cast<std::size_t>(rows * heads.query * dim);
    const Fenced q(q_size * sizeof(float)), out(q_size * sizeof(float));
    const auto floats = [](const Fenced& memory) { return reinterpret_cast<float*>(memory.data()); };
    Random random(6);
    std::byte* const table[] = {first.data(), second.data()};
    for (std::byte* const page : table) {
      for (int head = 0; head < 2 * heads.kv; ++head) {
        for (int slot = 0; slot < page_positions; ++slot) {
          backend::KvRow{format, page + head * kv_head_bytes(format, dim), slot, dim}.put(
              random.vector(static_cast<std::size_t>(dim)).data());
        }
      }
    }
    const KvLayer kv{.kind = 0, .keys = 0, .values = static_cast<std::int64_t>(half)};
    std::vector<PlanRow> plan_rows;
    for (int r = 0; r < rows; ++r) plan_rows.push_back({.position = position + r, .parent = r - 1});
    const PlanSequence sequence{.rows = rows, .pages = 2};
    const StepPlan plan{
        .rows = plan_rows, .sequences = {&sequence, 1}, .pages = table, .outputs = {}, .draws = {}, .format = format};

    Cpu device{{.threads = 2, .isa = isa}};
    const int hidden = 19;
    RandomTensor<Bf16> wq(heads.query * dim, hidden, 1), wk(heads.kv * dim, hidden, 2), wv(heads.kv * dim, hidden, 3);
    const std::vector<Tensor> tensors{wq.tensor, wk.tensor, wv.tensor};
    std::vector<float> x = random.vector(static_cast<std::size_t>(rows * hidden)), norm(hidden, 1.0f),
                       frequency(static_cast<std::size_t>(dim / 2), 0.1f);
    const View<float, 2> q_view{floats(q), rows, heads.query * dim};
    const auto weight = device.pack<Bf16>(tensors);
    auto step = device.begin(plan);
    step.qkv(View<const float, 2>{x.data(), rows, hidden}, Norm{norm.data(), 1e-5f}, Linear{weight},
             Rope{{frequency.data()}}, heads, kv, q_view);
    step.attend(q_view, heads, kv, View<float, 2>{floats(out), rows, heads.query * dim});
    double sum = 0;
    for (std::size_t i = 0; i < q_size; ++i) sum += floats(out)[i];
    CAPTURE(dim, name_of(isa), std::string(name_of(format)));
    REQUIRE(std::isfinite(sum));
  }
}

TEST_CASE("the test detects a vector read across the end") {
  const Fenced fenced(8);
  CHECK(fenced.data()[7] == std::byte{0});
  // The page after it is unreadable: letting the kernel read it fails with EFAULT instead of a crash.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(write(ends[1], fenced.data(), 16) != 16);
  close(ends[0]);
  close(ends[1]);
}
