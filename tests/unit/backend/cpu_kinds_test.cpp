// The kinds of norms, activations, positions and attention on backend::Cpu: compared with backend::Reference, and bit
// equality of a row alone and in a batch, on every instruction set.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
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

// Sums of at most 200 products of values near 1, scaled to be near 1: far above the error of float, far below that of a
// wrong formula.
constexpr double tolerance = 2e-5;

void require_near(const std::vector<float>& found, const std::vector<float>& expected, double near = tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(double{found[i]} - double{expected[i]}) <= near)) {
      CAPTURE(i, found[i], expected[i]);
      REQUIRE(false);
    }
  }
}

bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

View<float, 2> rows_of(std::vector<float>& values, int rows) {
  return {values.data(), rows, static_cast<int>(values.size()) / rows};
}

struct Kind {
  NormKind norm;
  bool weight, bias;
};
const std::vector<Kind> norms{{NormKind::rms, true, false},    {NormKind::rms, false, false},
                              {NormKind::layer, true, true},   {NormKind::layer, true, false},
                              {NormKind::layer, false, false}, {NormKind::none, false, false}};

Norm norm_of(const Kind& kind, const std::vector<float>& weight, const std::vector<float>& bias) {
  return {.weight = kind.weight ? weight.data() : nullptr,
          .epsilon = 1e-5f,
          .bias = kind.bias ? bias.data() : nullptr,
          .kind = kind.norm};
}

constexpr ActivationKind activation_kinds[] = {
    ActivationKind::identity, ActivationKind::silu,         ActivationKind::gelu_erf, ActivationKind::gelu_tanh,
    ActivationKind::relu,     ActivationKind::relu_squared, ActivationKind::xielu,    ActivationKind::soft_cap};

/// The kinds, with parameters.
std::vector<Activation> all_activations() {
  std::vector<Activation> all;
  for (Activation activation : activation_kinds) {
    activation.cap = 2.5f;
    activation.alpha_p = 0.7f, activation.alpha_n = 1.1f, activation.beta = 0.5f, activation.epsilon = -1e-6f;
    all.push_back(activation);
  }
  return all;
}
const std::vector<Activation> activations = all_activations();

}  // namespace

TEST_CASE("normalize: every kind, in every width") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  Cpu cpu{{.threads = 2, .isa = isa}};
  Random random(3);
  for (const int width : {1, 2, 15, 16, 31, 48, 60, 97, 768}) {
    const auto weight = random.vector(static_cast<std::size_t>(width)),
               bias = random.vector(static_cast<std::size_t>(width));
    for (const Kind& kind : norms) {
      // A mean far from zero, as residual streams have: the variance must not be computed as a difference of squares.
      std::vector<float> x = random.vector(static_cast<std::size_t>(3 * width));
      for (float& value : x) value += 3;
      std::vector<float> found = x, expected = x;
      cpu.begin({}).normalize(rows_of(found, 3), norm_of(kind, weight, bias));
      Reference{}.begin({}).normalize(rows_of(expected, 3), norm_of(kind, weight, bias));
      CAPTURE(width, name_of(kind.norm), name_of(isa));
      require_near(found, expected, width == 1 ? 1e-3 : tolerance);
    }
  }
}

TEST_CASE("mlp: every norm and activation, with bias and divisor") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  Cpu cpu{{.threads = 2, .isa = isa}};
  Random random(4);
  for (const int in : {33, 64, 130}) {
    const int out = 3 * in - 2;
    RandomTensor<Bf16> tensor(out, in, 5);
    const std::vector<Tensor> tensors{tensor.tensor};
    const auto weight = cpu.pack<Bf16>(tensors);
    const auto reference_weight = Reference{}.pack<Bf16>(tensors);
    const auto scale = random.vector(static_cast<std::size_t>(in)), shift = random.vector(static_cast<std::size_t>(in));
    const auto bias = random.vector(static_cast<std::size_t>(out), 3);
    auto divisor = random.vector(static_cast<std::size_t>(out));
    for (float& value : divisor) value += 2;
    for (const int rows : {1, 4, 9}) {
      std::vector<float> x = random.vector(static_cast<std::size_t>(rows * in), 3);
      for (const Kind& kind : norms) {
        for (const Activation& activation : activations) {
          for (const float* by : {static_cast<const float*>(nullptr), static_cast<const float*>(divisor.data())}) {
            std::vector<float> found(static_cast<std::size_t>(rows * out)), expected = found, alone = found;
            const Norm norm = norm_of(kind, scale, shift);
            cpu.begin({}).mlp(rows_of(x, rows), norm, Linear{weight, bias.data()}, activation, by,
                              rows_of(found, rows));
            Reference{}.begin({}).mlp(rows_of(x, rows), norm, Linear{reference_weight, bias.data()}, activation, by,
                                      rows_of(expected, rows));
            CAPTURE(in, rows, name_of(activation.kind), name_of(kind.norm), name_of(isa));
            require_near(found, expected, activation.kind == ActivationKind::relu_squared ? 20 * tolerance : tolerance);
            for (int r = 0; r < rows; ++r) {
              cpu.begin({}).mlp(View<const float, 2>{x.data() + r * in, 1, in}, norm, Linear{weight, bias.data()},
                                activation, by, View<float, 2>{alone.data() + r * out, 1, out});
            }
            REQUIRE(same_bits(alone.data(), found.data(), found.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("activations are within a few ulp over their whole range, and NaN stays NaN") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const auto activate = backend::cpu::common_kernels(isa).activate;
  const auto exact = [](const Activation& activation, double z) {
    const double alpha_p = double{activation.alpha_p}, alpha_n = double{activation.alpha_n};
    const double beta = double{activation.beta}, epsilon = double{activation.epsilon}, cap = double{activation.cap};
    switch (activation.kind) {
      case ActivationKind::silu: return z / (1 + std::exp(-z));
      case ActivationKind::gelu_erf: return 0.5 * z * (1 + std::erf(z / std::sqrt(2.0)));
      case ActivationKind::gelu_tanh:
        return 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
      case ActivationKind::relu: return z < 0 ? 0 : z;
      case ActivationKind::relu_squared: return z < 0 ? 0 : z * z;
      case ActivationKind::soft_cap: return cap * std::tanh(z / cap);
      case ActivationKind::xielu:
        return z > 0 ? alpha_p * z * z + beta * z : alpha_n * (std::expm1(std::min(z, epsilon)) - z) + beta * z;
      default: return z;
    }
  };
  for (const Activation& activation : activations) {
    const ActivationKind kind = activation.kind;
    double worst = 0;
    for (int i = -4000; i <= 4000; ++i) {
      const float z = static_cast<float>(i) * 0.005f;
      float y = 0;
      activate(activation, &z, nullptr, nullptr, 1, &y);
      const double right = exact(activation, double{z});
      const double size = std::max({1.0, std::abs(double{z}), std::abs(right)});
      worst = std::max(worst, std::abs(double{y} - right) / size);
    }
    CAPTURE(name_of(kind), name_of(isa), worst);
    // A soft cap rounds twice more than the others: the quotient and the product.
    CHECK(worst < 2.5e-7 + (kind == ActivationKind::soft_cap ? 2 * 0x1p-24 : 0));
    const float ends[] = {-200, 200, NAN};
    float y[3];
    activate(activation, ends, nullptr, nullptr, 3, y);
    const bool linear = kind <= ActivationKind::relu;
    if (linear && kind != ActivationKind::identity) CHECK(y[0] == 0);
    if (linear) CHECK(y[1] == 200);
    if (kind == ActivationKind::soft_cap) CHECK((y[0] == -2.5f && y[1] == 2.5f));
    CHECK(std::isnan(y[2]));
  }
}

TEST_CASE("qkv: clipping, norms of heads and of all, partial and no rotation") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  Cpu cpu{{.threads = 2, .isa = isa}};
  struct Shape {
    Heads heads;
    int hidden;
  };
  for (const Shape& shape : {Shape{{4, 2, 32}, 64}, Shape{{3, 3, 20}, 60}, Shape{{6, 1, 80}, 97}}) {
    const Heads heads = shape.heads;
    RandomLayer<Bf16> layer(heads, shape.hidden, 8, 8, 64, 5);
    const std::vector<Tensor> tensors{layer.q.tensor, layer.k.tensor, layer.v.tensor};
    const auto weight = cpu.pack<Bf16>(tensors);
    const auto reference_weight = Reference{}.pack<Bf16>(tensors);
    Random random(9);
    const auto q_scale = random.vector(static_cast<std::size_t>(heads.query * heads.dim)),
               q_shift = random.vector(q_scale.size());
    const auto k_scale = random.vector(static_cast<std::size_t>(heads.kv * heads.dim)),
               k_shift = random.vector(k_scale.size());
    for (const QkNorm over : {QkNorm::none, QkNorm::per_head, QkNorm::whole, QkNorm::own_weights, QkNorm::rotated}) {
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        for (const float clip : {0.0f, 0.7f}) {
          for (const int width : {-1, 0, 8}) {  // none, all, some dimensions rotate
            const Rope rope{.inverse_frequency = {width < 0 ? nullptr : layer.inverse_frequency.data()},
                            .width = std::max(width, 0),
                            .factor = 1.25f,
                            .pairs = clip != 0};
            const Norm norm{.weight = layer.norm.data(), .epsilon = 1e-5f};
            QkvShaping shaping{.clip = clip, .norm = over, .query = {}, .key = {}};
            shaping.query = {q_scale.data(), 1e-5f, q_shift.data(), kind};
            shaping.key = {k_scale.data(), 1e-5f, k_shift.data(), kind};
            if (over == QkNorm::own_weights) shaping.query.bias = shaping.key.bias = nullptr;
            const int rows = 7, position = 30, context = 48;
            TestCache found_cache(heads, context, 0), expected_cache(heads, context, 0), alone_cache(heads, context, 0);
            std::vector<float> x = random.vector(static_cast<std::size_t>(rows * shape.hidden));
            std::vector<float> found(static_cast<std::size_t>(rows * heads.query * heads.dim)), expected = found,
                                                                                                alone = found;
            const float* bias = layer.qkv_bias.data();
            const KvLayer place = found_cache.layer();
            cpu.begin(TestPlan(found_cache, rows, position))
                .qkv(rows_of(x, rows), norm, Linear{weight, bias}, rope, heads, place, rows_of(found, rows), shaping);
            Reference{}
                .begin(TestPlan(expected_cache, rows, position))
                .qkv(rows_of(x, rows), norm, Linear{reference_weight, bias}, rope, heads, place,
                     rows_of(expected, rows), shaping);
            CAPTURE(name_of(isa), heads.dim, name_of(over), name_of(kind), clip, width);
            require_near(found, expected, 1e-4);
            require_near(found_cache.all(), expected_cache.all(), 1e-4);
            const int q_width = heads.query * heads.dim;
            for (int r = 0; r < rows; ++r) {
              cpu.begin(TestPlan(alone_cache, 1, position + r))
                  .qkv(View<const float, 2>{x.data() + r * shape.hidden, 1, shape.hidden}, norm, Linear{weight, bias},
                       rope, heads, place, View<float, 2>{alone.data() + r * q_width, 1, q_width}, shaping);
            }
            REQUIRE(same_bits(alone.data(), found.data(), found.size()));
            const auto alone_kv = alone_cache.all(), found_kv = found_cache.all();
            REQUIRE(same_bits(alone_kv.data(), found_kv.data(), found_kv.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("attend: windows, slopes and scale, from all pages and from those inside a window") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  const Heads heads{6, 2, 20};
  const int context = 1300, rows = 9, width = heads.query * heads.dim;
  Random random(5);
  TestCache full(heads, context, 0);
  full.randomize(random, 2);
  const std::vector<float> slopes{0.5f, 0.25f, 0.125f, 0.0625f, 0.3f, 0.001f};
  std::vector<float> q = random.vector(static_cast<std::size_t>(rows * width), 2);
  for (const int window : {0, 1, 7, 64, 100, 512, 600}) {
    for (const int position : {0, 3, 60, 505, 700, 1290}) {
      for (const float* slope : {static_cast<const float*>(nullptr), slopes.data()}) {
        const Attention attention{.scale = slope == nullptr ? 0.0f : 0.3f,
                                  .window = window,
                                  .slopes = slope,
                                  .cap = window % 2 == 1 ? 1.5f : 0.0f,
                                  .temperature = window < 64 ? 0.4f : 0.0f,
                                  .temperature_context = 16};
        Cpu one{{.threads = 1, .isa = isa}}, three{{.threads = 3, .isa = isa}};
        std::vector<float> together(q.size()), alone(q.size()), expected(q.size()), windowed(q.size());
        const TestPlan plan(full, rows, position);
        const KvLayer place = full.layer();
        three.begin(plan).attend(rows_of(q, rows), heads, place, rows_of(together, rows), attention);
        Reference{}.begin(plan).attend(rows_of(q, rows), heads, place, rows_of(expected, rows), attention);
        CAPTURE(window, position, slope != nullptr, name_of(isa));
        require_near(together, expected);
        for (int r = 0; r < rows; ++r) {
          one.begin(TestPlan(full, 1, position + r))
              .attend(View<const float, 2>{q.data() + r * width, 1, width}, heads, place,
                      View<float, 2>{alone.data() + r * width, 1, width}, attention);
        }
        REQUIRE(same_bits(alone.data(), together.data(), alone.size()));
        if (window == 0) continue;
        // Pages behind the window of all rows are freed, and other values outside it are NaN.
        TestCache cache = full;
        const int oldest = std::max(0, position + 1 - window);
        for (int j = 0; j < context; ++j) {
          if (j >= oldest && j < position + rows) continue;
          for (int h = 0; h < heads.kv; ++h) {
            for (int d = 0; d < heads.dim; ++d) cache.key(h, j, d) = cache.value(h, j, d) = std::nanf("");
          }
        }
        for (int page = 0; page < oldest / page_positions; ++page) cache.release(page);
        const TestPlan left(cache, rows, position);
        one.begin(left).attend(rows_of(q, rows), heads, place, rows_of(windowed, rows), attention);
        REQUIRE(same_bits(windowed.data(), together.data(), together.size()));
        Reference{}.begin(left).attend(rows_of(q, rows), heads, place, rows_of(alone, rows), attention);
        REQUIRE(same_bits(alone.data(), expected.data(), expected.size()));
      }
    }
  }
}

TEST_CASE("gated_mlp with other activations, logits with a bias, positions beside the embedding") {
  const Isa isa = GENERATE(from_range(backend::available_isas()));
  Cpu cpu{{.threads = 2, .isa = isa}};
  RandomLayer<Fp32> layer({2, 1, 16}, 60, 70, 50, 8, 5);
  Random random(8);
  std::vector<float> x = random.vector(5 * 60);
  const Norm norm{.weight = layer.norm.data(), .epsilon = 1e-5f, .bias = layer.o_bias.data(), .kind = NormKind::layer};
  const std::vector<Tensor> gate_up{layer.gate.tensor, layer.up.tensor}, table{layer.table.tensor};
  for (const Activation& activation : activations) {
    std::vector<float> found(5 * 70), expected(found);
    const auto both = cpu.pack<Fp32>(gate_up);  // the same type as the reference's
    cpu.begin({}).gated_mlp(rows_of(x, 5), norm, Linear{both, layer.mlp_bias.data()}, rows_of(found, 5), activation);
    Reference{}.begin({}).gated_mlp(rows_of(x, 5), norm, Linear{both, layer.mlp_bias.data()}, rows_of(expected, 5),
                                    activation);
    require_near(found, expected, activation.kind == ActivationKind::relu_squared ? 20 * tolerance : tolerance);
  }
  const auto bias = random.vector(50);
  std::vector<float> found(5 * 50), expected(found), biased(found);
  const auto matrix = cpu.pack<Fp32>(table);
  cpu.begin({}).logits(rows_of(x, 5), norm, Linear{matrix, bias.data()}, rows_of(biased, 5));
  cpu.begin({}).logits(rows_of(x, 5), norm, Linear{matrix}, rows_of(found, 5));
  Reference{}.begin({}).logits(rows_of(x, 5), norm, Linear{matrix, bias.data()}, rows_of(expected, 5));
  require_near(biased, expected);
  for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(biased[i] == found[i] + bias[i % 50]);

  const std::vector<Token> tokens{3, 49, 3};
  const auto places = random.vector(7 * 60);
  const View<const float, 2> table_of_places{places.data(), 7, 60};
  std::vector<float> with(3 * 60), without(with), reference(with);
  const TestPlan plan(tokens, 3);
  cpu.begin(plan).embed(matrix, rows_of(with, 3), table_of_places, 1);
  cpu.begin(plan).embed(matrix, rows_of(without, 3));
  Reference{}.begin(plan).embed(matrix, rows_of(reference, 3), table_of_places, 1);
  CHECK(with == reference);
  std::vector<float> only(3 * 60);
  cpu.begin(plan).embed_positions(matrix, 1, rows_of(only, 3));
  Reference{}.begin(plan).embed_positions(matrix, 1, rows_of(reference, 3));
  CHECK(only == reference);
  CHECK(std::equal(only.begin(), only.begin() + 60, matrix.row(4)));
  for (std::size_t i = 0; i < with.size(); ++i) REQUIRE(with[i] == without[i] + places[4 * 60 + i]);
}
