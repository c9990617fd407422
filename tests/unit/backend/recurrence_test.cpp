// The recurrences of layers against their formulas in double, on every instruction set. A row has the same bits for
// every cut of its text, and whether or not the states of earlier rows are kept.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int text_rows = 9;

/// A mixer with random vectors, and random inputs.
struct Layer {
  explicit Layer(const Mixer& mixer) : shape(mixer), random(shape.taps + shape.heads) {
    conv = random.vector(static_cast<std::size_t>(shape.taps * shape.channels()));
    conv_bias = random.vector(static_cast<std::size_t>(shape.channels()));
    dt_bias = random.vector(static_cast<std::size_t>(shape.heads));
    skip = random.vector(static_cast<std::size_t>(shape.heads));
    decay = random.vector(static_cast<std::size_t>(shape.heads));
    for (float& value : decay) value = -0.1f - std::abs(value);
    norm = random.vector(static_cast<std::size_t>(shape.inner()));
    projected = random.vector(static_cast<std::size_t>(text_rows * shape.projected()));
  }

  Recurrence recurrence() const {
    const bool delta = shape.kind == MixerKind::delta_net, mamba = shape.kind == MixerKind::mamba2;
    return {.shape = shape,
            .conv = conv.data(),
            .conv_bias = shape.conv_bias ? conv_bias.data() : nullptr,
            .decay = delta || mamba ? decay.data() : nullptr,
            .dt_bias = delta || mamba ? dt_bias.data() : nullptr,
            .skip = mamba ? skip.data() : nullptr,
            .gate_factor = mamba ? 0.7f : 1,
            .dt_factor = mamba ? 1.3f : 1,
            .norm = {.weight = norm.data(), .epsilon = 1e-5f}};
  }

  Mixer shape;
  Random random;
  std::vector<float> conv, conv_bias, dt_bias, skip, decay, norm, projected;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::log1p(std::exp(x)); }

void normalize(double* x, int width, const float* weight, double epsilon) {
  double squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  for (int i = 0; i < width; ++i) x[i] *= weight[i] / std::sqrt(squares / width + epsilon);
}

/// By the formulas, the whole text from its start.
std::vector<double> expected_of(const Layer& layer) {
  const Mixer& shape = layer.shape;
  const auto inner = static_cast<std::size_t>(shape.inner()), channels = static_cast<std::size_t>(shape.channels());
  const auto all = static_cast<std::size_t>(shape.projected()), keys = static_cast<std::size_t>(shape.keys());
  const auto taps = static_cast<std::size_t>(shape.taps), heads = static_cast<std::size_t>(shape.heads);
  const auto width = static_cast<std::size_t>(shape.head_dim), n = static_cast<std::size_t>(shape.state);
  const bool short_conv = shape.kind == MixerKind::short_conv, delta = shape.kind == MixerKind::delta_net;
  std::vector<std::vector<double>> columns;
  std::vector<double> state(heads * width * n), out;
  for (std::size_t r = 0; r < text_rows; ++r) {
    const float* const row = layer.projected.data() + r * all;
    std::vector<double>& u = columns.emplace_back(channels);
    for (std::size_t c = 0; c < channels; ++c)
      u[c] = short_conv ? double{row[c]} * row[2 * inner + c] : row[(delta ? 0 : inner) + c];
    std::vector<double> v(channels), y(inner);
    for (std::size_t c = 0; c < channels; ++c) {
      v[c] = shape.conv_bias ? layer.conv_bias[c] : 0;
      for (std::size_t j = 0; j < taps && j <= r; ++j)
        v[c] += layer.conv[(taps - 1 - j) * channels + c] * columns[r - j][c];
      if (!short_conv) v[c] = silu(v[c]);
    }
    if (short_conv) {
      for (std::size_t c = 0; c < inner; ++c) y[c] = row[inner + c] * v[c];
    } else if (delta) {
      const float* const numbers = row + channels + inner;
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t group = shape.tiled ? h % (keys / n) : h / (heads / (keys / n));
        const double *const q = &v[group * n], *const k = &v[keys + group * n], *const value = &v[2 * keys + h * width];
        double q_length = 1e-6, k_length = 1e-6;
        for (std::size_t i = 0; i < n; ++i) q_length += q[i] * q[i], k_length += k[i] * k[i];
        const double decay = std::exp(layer.decay[h] * softplus(double{numbers[heads + h]} + layer.dt_bias[h]));
        for (std::size_t j = 0; j < width; ++j) {
          double* const column = &state[h * width * n + j];  // [n, width]
          double seen = 0;
          for (std::size_t i = 0; i < n; ++i) seen += (column[i * width] *= decay) * k[i] / std::sqrt(k_length);
          const double change = sigmoid(numbers[h]) * (value[j] - seen);
          for (std::size_t i = 0; i < n; ++i) {
            column[i * width] += k[i] / std::sqrt(k_length) * change;
            y[h * width + j] += column[i * width] * q[i] / std::sqrt(q_length * static_cast<double>(n));
          }
        }
        normalize(&y[h * width], shape.head_dim, layer.norm.data(), 1e-5f);
        for (std::size_t j = 0; j < width; ++j) y[h * width + j] *= silu(row[channels + h * width + j]);
      }
    } else {
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t group = h * (keys / n) / heads;
        const double *const b = &v[inner + group * n], *const c = b + keys;
        const double dt = softplus(double{1.3f} * row[inner + channels + h] + layer.dt_bias[h]);
        for (std::size_t i = 0; i < width; ++i) {
          const double x = v[h * width + i];
          double* const held = &state[(h * width + i) * n];
          for (std::size_t j = 0; j < n; ++j) {
            held[j] = std::exp(dt * layer.decay[h]) * held[j] + dt * x * b[j];
            y[h * width + i] += held[j] * c[j];
          }
          y[h * width + i] += layer.skip[h] * x;
        }
      }
      const auto gate = [&] {
        for (std::size_t i = 0; i < inner; ++i) y[i] *= silu(double{0.7f} * row[i]);
      };
      const std::size_t part = inner / (keys / n);
      if (shape.norm != MixerNorm::before_gate) gate();
      for (std::size_t first = 0; shape.norm != MixerNorm::none && first < inner; first += part)
        normalize(&y[first], static_cast<int>(part), &layer.norm[first], 1e-5f);
      if (shape.norm == MixerNorm::before_gate) gate();
    }
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

/// In steps of `piece` rows. kept: every row's state has its own page; otherwise only the last of a step.
template <class Device>
std::vector<float> outputs_of(Device device, const Layer& layer, int piece, bool kept) {
  const std::int64_t offset = 64, all = layer.shape.projected(), inner = layer.shape.inner();
  const std::size_t page =
      static_cast<std::size_t>(offset) + sizeof(float) * static_cast<std::size_t>(layer.shape.state_floats());
  std::vector<std::vector<std::byte>> pages(text_rows + 1, std::vector<std::byte>(page, std::byte{0xff}));  // NaN
  std::vector<float> projected = layer.projected, out(static_cast<std::size_t>(text_rows * inner));
  for (int first = 0; first < text_rows; first += piece) {
    const int rows = std::min(piece, text_rows - first);
    std::vector<PlanRow> plan_rows;
    std::vector<std::byte*> states{first == 0 ? nullptr : pages[static_cast<std::size_t>(first)].data()};
    for (int r = 1; r <= rows; ++r) {
      plan_rows.push_back({.position = first + r - 1, .parent = r - 2});
      states.push_back(pages[static_cast<std::size_t>(first + (kept ? r : rows))].data());
    }
    const PlanSequence sequence{.rows = rows};
    const StepPlan plan{
        .rows = plan_rows, .sequences = {&sequence, 1}, .pages = {}, .states = states, .outputs = {}, .draws = {}};
    device.begin(plan).recur(View<float, 2>{projected.data() + first * all, rows, all}, layer.recurrence(), offset,
                             View<float, 2>{out.data() + first * inner, rows, inner});
  }
  return out;
}

const std::vector<Mixer> mixers{
    {.kind = MixerKind::short_conv, .taps = 3, .heads = 1, .head_dim = 70},
    {.kind = MixerKind::short_conv, .taps = 1, .heads = 1, .head_dim = 3, .conv_bias = true},
    {.kind = MixerKind::delta_net, .taps = 4, .heads = 4, .head_dim = 128, .groups = 2, .state = 128},
    {.kind = MixerKind::delta_net, .taps = 3, .heads = 6, .head_dim = 13, .groups = 3, .state = 7, .tiled = true},
    {.kind = MixerKind::delta_net, .taps = 2, .heads = 1, .head_dim = 81, .groups = 1, .state = 1},
    {.kind = MixerKind::mamba2, .taps = 4, .heads = 4, .head_dim = 64, .groups = 1, .state = 128, .conv_bias = true},
    {.kind = MixerKind::mamba2,
     .taps = 4,
     .heads = 6,
     .head_dim = 5,
     .groups = 2,
     .state = 19,
     .norm = MixerNorm::before_gate},
    {.kind = MixerKind::mamba2,
     .taps = 2,
     .heads = 3,
     .head_dim = 17,
     .groups = 3,
     .state = 16,
     .norm = MixerNorm::none}};

template <class Device>
void check(const Device& device, const Layer& layer, const std::vector<double>& expected) {
  const std::vector<float> whole = outputs_of(device, layer, text_rows, false);
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(expected[i] - double{whole[i]}));
  }
  CAPTURE(largest, worst);
  CHECK(worst < 1e-5 * largest);
  CHECK(outputs_of(device, layer, text_rows, true) == whole);
  for (const int piece : {1, 2, 4}) CHECK(outputs_of(device, layer, piece, true) == whole);
}

}  // namespace

TEST_CASE("recurrences agree with their formulas, and rows have the same bits for every cut") {
  for (const Mixer& mixer : mixers) {
    CAPTURE(std::string(name_of(mixer.kind)), mixer.heads, mixer.head_dim, mixer.state);
    REQUIRE(fault_of(mixer).empty());
    const Layer layer(mixer);
    const std::vector<double> expected = expected_of(layer);
    check(backend::Reference{}, layer, expected);
    for (const backend::Isa isa : backend::available_isas()) {
      CAPTURE(name_of(isa));
      check(backend::Cpu{{.threads = 2, .isa = isa}}, layer, expected);
    }
  }
}
