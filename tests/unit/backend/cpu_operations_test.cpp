// Every operation of backend::Cpu against backend::Reference, in awkward shapes, on every instruction set.
//
// Tolerances. A sum of n products in float, in any order, fused or not, has an error of at most n * eps * S with S =
// sum |x_i w_i| (Higham, Accuracy and Stability, 3.1; eps = 2^-24). Two such sums differ by at most twice that. A
// normalised input has a relative error of (hidden + 4) eps. These bounds are worst cases: a wrong kernel exceeds them
// by orders of magnitude, and a correct one stays far below.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Isa;
using backend::Reference;

namespace {

constexpr double eps = 0x1p-24;

struct Case {
  Heads heads;
  int hidden, ffn, vocab;
};
const std::vector<Case> cases{{{1, 1, 2}, 1, 1, 1},      {{2, 1, 4}, 3, 5, 7},        {{3, 1, 80}, 48, 97, 97},
                              {{4, 4, 64}, 129, 65, 31}, {{9, 3, 64}, 576, 1536, 50}, {{12, 12, 64}, 768, 257, 97},
                              {{2, 2, 1024}, 40, 33, 17}};

template <class Format>
std::vector<double> row_of(const RandomTensor<Format>& tensor, std::int64_t row) {
  const std::int64_t in = tensor.tensor.shape[1];
  std::vector<float> values(static_cast<std::size_t>(in));
  convert(tensor.tensor, row * in, in, values.data());
  return {values.begin(), values.end()};
}

/// S of every output of `x . weight^T`: [rows, out]
template <class Format>
std::vector<double> magnitudes(const std::vector<float>& x, const RandomTensor<Format>& weight) {
  const std::size_t in = static_cast<std::size_t>(weight.tensor.shape[1]), rows = x.size() / in;
  const std::size_t out = static_cast<std::size_t>(weight.tensor.shape[0]);
  std::vector<double> sums(rows * out);
  for (std::size_t o = 0; o < out; ++o) {
    const std::vector<double> w = row_of(weight, static_cast<std::int64_t>(o));
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < in; ++i) sums[r * out + o] += std::abs(w[i] * static_cast<double>(x[r * in + i]));
    }
  }
  return sums;
}

std::vector<float> normalized(const std::vector<float>& x, const std::vector<float>& norm, float epsilon) {
  std::vector<float> out(x);
  for (std::size_t r = 0; r < x.size() / norm.size(); ++r) {
    double squares = 0;
    for (std::size_t i = 0; i < norm.size(); ++i) squares += std::pow(double{x[r * norm.size() + i]}, 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(norm.size()) + double{epsilon});
    for (std::size_t i = 0; i < norm.size(); ++i) {
      out[r * norm.size() + i] = static_cast<float>(x[r * norm.size() + i] * scale * norm[i]);
    }
  }
  return out;
}

struct Setup {
  Case shape;
  Isa isa;
  int rows;
};

template <class Format>
struct Pair {
  explicit Pair(const Setup& setup, std::size_t skew = 0)
      : shape(setup.shape),
        rows(setup.rows),
        layer(shape.heads, shape.hidden, shape.ffn, shape.vocab, 600, 5, skew),
        cpu({.threads = 2, .isa = setup.isa}) {}

  Case shape;
  int rows;
  RandomLayer<Format> layer;
  Reference reference;
  Cpu cpu;
  Random random{17};

  std::vector<float> input(int width) { return random.vector(static_cast<std::size_t>(rows * width)); }
  View<float, 2> view(std::vector<float>& values) const {
    return {values.data(), rows, static_cast<int>(values.size()) / rows};
  }
  Norm norm() const { return {.weight = layer.norm.data(), .epsilon = 1e-5f}; }
};

void require_close(const std::vector<float>& found, const std::vector<float>& expected,
                   const std::vector<double>& tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(double{found[i]} - double{expected[i]});
    if (!(difference <= tolerance[i])) {
      CAPTURE(i, found[i], expected[i], tolerance[i]);
      REQUIRE(difference <= tolerance[i]);
    }
  }
}

template <class Format>
void check_project(const Setup& setup, std::size_t skew) {
  Pair<Format> pair(setup, skew);
  const int in = pair.shape.heads.query * pair.shape.heads.dim;
  const std::vector<Tensor> tensors{pair.layer.o.tensor};
  std::vector<float> input = pair.input(in), x = pair.input(pair.shape.hidden);
  for (const float* bias : {static_cast<const float*>(nullptr), static_cast<const float*>(pair.layer.o_bias.data())}) {
    std::vector<float> found = x, expected = x;
    const auto reference_weight = pair.reference.template pack<Format>(tensors);
    const auto weight = pair.cpu.template pack<Format>(tensors);
    pair.reference.begin({}).project(pair.view(input), Linear{reference_weight, bias}, pair.view(expected));
    pair.cpu.begin({}).project(pair.view(input), Linear{weight, bias}, pair.view(found));
    std::vector<double> tolerance = magnitudes(input, pair.layer.o);
    for (std::size_t i = 0; i < tolerance.size(); ++i) {
      tolerance[i] = 2 * eps * ((in + 2) * tolerance[i] + 4);  // two more additions of values below 1
    }
    require_close(found, expected, tolerance);
  }
}

template <class Format>
void check_logits(const Setup& setup) {
  Pair<Format> pair(setup);
  std::vector<float> x = pair.input(pair.shape.hidden);
  std::vector<float> found(static_cast<std::size_t>(pair.rows * pair.shape.vocab)), expected = found;
  const std::vector<Tensor> tensors{pair.layer.table.tensor};
  const auto reference_weight = pair.reference.template pack<Format>(tensors);
  const auto weight = pair.cpu.template pack<Format>(tensors);
  pair.reference.begin({}).logits(pair.view(x), pair.norm(), Linear{reference_weight}, pair.view(expected));
  pair.cpu.begin({}).logits(pair.view(x), pair.norm(), Linear{weight}, pair.view(found));
  std::vector<double> tolerance = magnitudes(normalized(x, pair.layer.norm, 1e-5f), pair.layer.table);
  for (double& t : tolerance) t = 2 * eps * (2 * pair.shape.hidden + 8) * t;
  require_close(found, expected, tolerance);
}

template <class Format>
void check_gated_mlp(const Setup& setup) {
  Pair<Format> pair(setup);
  std::vector<float> x = pair.input(pair.shape.hidden);
  const std::vector<Tensor> tensors{pair.layer.gate.tensor, pair.layer.up.tensor};
  const std::vector<float> normed = normalized(x, pair.layer.norm, 1e-5f);
  const std::vector<double> gate_size = magnitudes(normed, pair.layer.gate),
                            up_size = magnitudes(normed, pair.layer.up);
  std::vector<float> found(gate_size.size()), expected = found;
  const float* bias = pair.layer.mlp_bias.data();
  const auto reference_weight = pair.reference.template pack<Format>(tensors);
  const auto weight = pair.cpu.template pack<Format>(tensors);
  pair.reference.begin({}).gated_mlp(pair.view(x), pair.norm(), Linear{reference_weight, bias}, pair.view(expected));
  pair.cpu.begin({}).gated_mlp(pair.view(x), pair.norm(), Linear{weight, bias}, pair.view(found));
  std::vector<double> tolerance(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    // |silu'| <= 1.1 and |silu(g)| <= |g|; |bias| <= 1; the exponential adds a few eps of relative error.
    const double g = gate_size[i] + 1, u = up_size[i] + 1, per_sum = 2 * eps * (2 * pair.shape.hidden + 8);
    tolerance[i] = 1.1 * per_sum * g * u + g * per_sum * u + 16 * eps * g * u;
  }
  require_close(found, expected, tolerance);
}

template <class Format>
void check_qkv_and_attend(const Setup& setup, int position) {
  Pair<Format> pair(setup);
  const Heads heads = pair.shape.heads;
  TestCache expected_cache(heads, 600, 0);
  expected_cache.randomize(pair.random);
  TestCache found_cache = expected_cache;
  std::vector<float> x = pair.input(pair.shape.hidden);
  const std::vector<Tensor> tensors{pair.layer.q.tensor, pair.layer.k.tensor, pair.layer.v.tensor};
  const Rope rope{.inverse_frequency = {pair.layer.inverse_frequency.data()}};
  std::vector<float> found(static_cast<std::size_t>(pair.rows * heads.query * heads.dim)), expected = found;
  const float* bias = pair.layer.qkv_bias.data();
  const auto reference_weight = pair.reference.template pack<Format>(tensors);
  const auto weight = pair.cpu.template pack<Format>(tensors);
  pair.reference.begin(TestPlan(expected_cache, pair.rows, position))
      .qkv(pair.view(x), pair.norm(), Linear{reference_weight, bias}, rope, heads, expected_cache.layer(),
           pair.view(expected));
  pair.cpu.begin(TestPlan(found_cache, pair.rows, position))
      .qkv(pair.view(x), pair.norm(), Linear{weight, bias}, rope, heads, found_cache.layer(), pair.view(found));
  const std::vector<float> normed = normalized(x, pair.layer.norm, 1e-5f);
  double largest = 0;  // S of any output; a rotation mixes two of them
  for (const auto* tensor : {&pair.layer.q, &pair.layer.k, &pair.layer.v}) {
    for (const double s : magnitudes(normed, *tensor)) largest = std::max(largest, s + 1);
  }
  const double per_value = 2 * (2 * eps * (2 * pair.shape.hidden + 8) * largest) + 8 * eps * largest;
  require_close(found, expected, std::vector<double>(found.size(), per_value));
  require_close(found_cache.all(), expected_cache.all(), std::vector<double>(found_cache.all().size(), per_value));

  // Attention from identical inputs. A score has an error of dim * eps * sum |q k| / sqrt(dim), a weight relatively
  // twice that, and the result, a mean of values, that times the largest value, plus the error of its own sum.
  found_cache = expected_cache;
  std::vector<float> q = expected, found_mix(found.size()), expected_mix(found.size());
  pair.reference.begin(TestPlan(expected_cache, pair.rows, position))
      .attend(pair.view(q), heads, expected_cache.layer(), pair.view(expected_mix));
  pair.cpu.begin(TestPlan(found_cache, pair.rows, position))
      .attend(pair.view(q), heads, found_cache.layer(), pair.view(found_mix));
  double most_q = 0, most_kv = 1;
  for (const float value : q) most_q = std::max(most_q, std::abs(double{value}));
  for (const float value : expected_cache.all()) most_kv = std::max(most_kv, std::abs(double{value}));
  const double score = (heads.dim + 4) * eps * std::sqrt(heads.dim) * most_q * most_kv;
  const double mean = 2 * (2 * score + (position + pair.rows + 16) * eps) * most_kv;
  require_close(found_mix, expected_mix, std::vector<double>(found.size(), mean));
}

template <class Format>
void check_all(const Setup& setup) {
  CAPTURE(Format::name, name_of(setup.isa), setup.rows, setup.shape.hidden);
  check_project<Format>(setup, 0);
  check_project<Format>(setup, alignof(typename Format::Element));
  check_project<Format>(setup, 1);
  check_logits<Format>(setup);
  check_gated_mlp<Format>(setup);
  check_qkv_and_attend<Format>(setup, setup.rows == 5 ? 510 : 0);
}

}  // namespace

TEST_CASE("every operation agrees with the reference") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const int rows = GENERATE(1, 2, 5, 8, 19);
  for (const Case& shape : cases) {
    if (shape.hidden > 500 && rows != 5) continue;  // the large ones once, since the reference is slow
    check_all<Fp32>({shape, isa, rows});
    check_all<Bf16>({shape, isa, rows});
    check_all<Fp16>({shape, isa, rows});
  }
}

TEST_CASE("embedding copies rows of the table") {
  RandomLayer<Fp16> layer({1, 1, 2}, 45, 8, 20, 8, 3);
  const std::vector<Tensor> tensors{layer.table.tensor};
  Cpu device;
  const auto table = device.pack<Fp16>(tensors);
  const std::vector<Token> tokens{19, 0, 7, 7};
  std::vector<float> x(4 * 45), expected(x);
  const TestPlan plan(tokens);
  device.begin(plan).embed(table, View<float, 2>{x.data(), 4, 45});
  Reference{}.begin(plan).embed(table, View<float, 2>{expected.data(), 4, 45});
  CHECK(x == expected);
}

TEST_CASE("the exponential of softmax and SiLU is exact at the ends and near one ulp between") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const auto silu = [&](const float* gate, const float* up, int count, float* out) {
    backend::cpu::common_kernels(isa).activate(ActivationKind::silu, gate, up, nullptr, count, out);
  };
  // silu(-x) = -x / (1 + e^x): read e^x back from it in double.
  double worst = 0;
  for (int i = -2000; i <= 2000; ++i) {
    const float x = static_cast<float>(i) * 0.01f, one = 1;
    float y = 0;
    silu(&x, &one, 1, &y);
    const double exact = double{x} / (1 + std::exp(-double{x}));
    if (exact != 0) worst = std::max(worst, std::abs(y - exact) / std::abs(exact));
  }
  CHECK(worst < 4 * eps);
  const float ends[] = {-INFINITY, -200, 200, INFINITY, NAN};
  float y[5];
  const float ones[] = {1, 1, 1, 1, 1};
  silu(ends, ones, 5, y);
  CHECK(std::isnan(y[0]));  // -inf / inf, as the formula says
  CHECK(y[1] == 0);
  CHECK(y[2] == 200);
  CHECK(y[3] == INFINITY);
  CHECK(std::isnan(y[4]));
}

TEST_CASE("a position whose weight would be subnormal adds nothing to attention") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const auto& kernels = backend::cpu::common_kernels(isa);
  const auto attend = kernels.attend[static_cast<int>(KvFormat::f32)];
  constexpr int dim = 16, queries = 20;
  // The scores of the two positions differ by the first number of the query.
  std::vector<float> page(2 * page_positions * dim, 0.0f);
  backend::PageBuffer<float> scratch(backend::cpu::attend_scratch(dim));
  page[0] = 1;
  page[page_positions * dim + dim] = 1e38f;
  const auto pages = reinterpret_cast<const std::byte*>(page.data());
  for (const int count : {1, queries}) {
    for (const float apart : {87.0f, 88.0f, 104.0f, 200.0f}) {
      const std::vector<float> query = {apart, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
      std::vector<float> out(queries * dim, -1.0f);
      backend::cpu::AttendTask task;
      task.pages = &pages;
      task.values = page_positions * dim * static_cast<std::int64_t>(sizeof(float));
      task.dim = dim;
      task.queries = count;
      for (int m = 0; m < count; ++m) {
        task.query[m] = query.data();
        task.out[m] = out.data() + m * dim;
        task.visible[m] = 2;
        task.scale[m] = 1;
      }
      task.scratch = scratch.data();
      attend(task);
      for (int m = 0; m < count; ++m) CHECK((out[static_cast<std::size_t>(m * dim)] == 0) == (apart > 87.4f));
    }
  }
}

TEST_CASE("angles are right at large positions") {
  // The float product position * frequency, then cosine and sine with the precision of the C library.
  backend::RopeTable table;
  const float frequency[] = {1.0f, 0.7f, 1e-4f};
  for (const int position : {0, 1, 4095, 131071, 16777215}) {
    table.forget();
    const auto angles = table.angles(TestPlan({0, 0}, position), {.inverse_frequency = {frequency}}, 3);
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < 3; ++i) {
        const double angle = static_cast<float>(position + r) * frequency[i];
        CHECK(std::abs(angles.cosine[r * 3 + i] - std::cos(angle)) < 2 * eps);
        CHECK(std::abs(angles.sine[r * 3 + i] - std::sin(angle)) < 2 * eps);
      }
    }
  }
  // The same address with other frequencies in another step: no stale values. Also for two ropes in one step.
  float reused[] = {1.0f};
  const TestPlan plan({0}, 3);
  const Rope rope{.inverse_frequency = {reused}};
  table.forget();
  const float before = table.angles(plan, rope, 1).cosine[0];
  reused[0] = 0.5f;
  table.forget();
  CHECK(table.angles(plan, rope, 1).cosine[0] != before);
  CHECK(table.angles(plan, {.inverse_frequency = {frequency}}, 1).cosine[0] == before);
}
