// Every product of backend::Gpu against Reference: formats, epilogues, both variants. The same bodies run on emulated
// and real devices.
#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/gpu_layer.hpp"

namespace slm::testing {

struct ProductShape {
  Heads heads;
  int hidden, ffn;
};
// Whole tiles; odd sizes; heads of 80 and 96; AMD-135M's hidden of 576 with shared keys.
inline const std::vector<ProductShape> product_shapes{
    {{2, 1, 32}, 64, 48}, {{3, 1, 10}, 37, 21}, {{2, 2, 80}, 160, 96}, {{1, 1, 96}, 96, 64}, {{9, 3, 64}, 576, 64}};

/// Adapters of one product, alternating all types and small, odd and the largest ranks, each also on the device.
template <class Device>
class ProductAdapters {
 public:
  static constexpr int product = 9;

  /// parts: the outputs of the fused parts. Every second adapter leaves the first part unchanged.
  ProductAdapters(Device device, std::int64_t in, const std::vector<std::int64_t>& parts) {
    const std::pair<DType, int> kinds[] = {{DType::bf16, 8}, {DType::f32, 1}, {DType::f16, 37}, {DType::bf16, 512}};
    for (const auto& [type, rank] : kinds) {
      Adapter& adapter = on_host_.emplace_back();
      adapter.begins = std::vector<int>(product + 1);
      Matrices matrices;
      std::int64_t first = 0;
      for (std::size_t part = 0; part < parts.size(); first += parts[part++]) {
        if (part == 0 && parts.size() > 1 && on_host_.size() % 2 == 0) continue;
        matrices.push_back(matrix(type, rank * in, 1 / std::sqrt(static_cast<float>(in))));
        matrices.push_back(matrix(type, rank * parts[part], 1 / std::sqrt(static_cast<float>(rank))));
        adapter.changes.push_back(
            {.type = type, .scale = 0.75f, .rank = rank, .in = in, .first = first, .out = parts[part]});
      }
      adapter.begins.push_back(static_cast<int>(adapter.changes.size()));
      put_together(adapter, matrices);
      on_device_.push_back(device.place(adapter));
    }
  }

  /// For row r; every third has none.
  const Adapter* on_host(int r) const { return at(on_host_, r); }
  const Adapter* on_device(int r) const { return at(on_device_, r); }

 private:
  static const Adapter* at(const std::deque<Adapter>& all, int r) {
    return r % 3 == 1 ? nullptr : &all[static_cast<std::size_t>(r) % all.size()];
  }

  /// Each at a cache line, as complete ones.
  using Line = std::array<std::byte, 64>;
  using Matrices = std::vector<std::vector<Line>>;

  std::vector<Line> matrix(DType type, std::int64_t count, float size) {
    std::vector<Line> lines;
    visit_elements({.type = type}, [&]<class Element>(Element) {
      const auto per_line = static_cast<std::int64_t>(sizeof(Line) / sizeof(Element));
      lines.resize(static_cast<std::size_t>((count + per_line - 1) / per_line));
      for (std::int64_t i = 0; i < count; ++i) {
        const Element value = from_float<Element>(random_() * size);
        std::memcpy(reinterpret_cast<std::byte*>(lines.data()) + i * sizeof value, &value, sizeof value);
      }
    });
    return lines;
  }

  /// The adapter's memory: the matrices one after another, without gaps.
  static void put_together(Adapter& adapter, const Matrices& matrices) {
    for (const std::vector<Line>& matrix : matrices) adapter.bytes += matrix.size() * sizeof(Line);
    const auto memory = std::make_shared<Line[]>(adapter.bytes / sizeof(Line));
    Line* end = memory.get();
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      LowRank& change = adapter.changes[i / 2];
      (i % 2 == 0 ? change.down : change.up) = end->data();
      end = std::ranges::copy(matrices[i], end).out;
    }
    adapter.memory = std::shared_ptr<const std::byte[]>(memory, memory[0].data());
  }

  Random random_{31};
  std::deque<Adapter> on_host_, on_device_;
};

/// With adapters, each row is a separate sequence.
template <class Device, class Format>
class ProductChecks {
 public:
  ProductChecks(const ProductShape& s, int count, backend::GpuOptions options, bool with_adapters = false)
      : shape(s), rows(count), adapted(with_adapters), layer(s.heads, s.hidden, s.ffn, 50, 256, 9), device(options) {}

  void project() {
    const auto [weight, plain] = packs({layer.o.tensor});
    const Plans plans = plans_of(shape.heads.query * shape.heads.dim, {shape.hidden});
    const Held bias(device, layer.o_bias), input(device, some(shape.heads.query * shape.heads.dim)),
        x(device, some(shape.hidden));
    std::vector<float> expected = x.host;
    device.begin(plans.on_device).project(input.view(rows), Linear{weight, bias.data(), product}, x.view(rows));
    reference.begin(plans.on_host)
        .project(view_of(input.host, rows), Linear{plain, layer.o_bias.data(), product}, view_of(expected, rows));
    CHECK(worst(x.read(), expected) < tolerance);
  }

  void gated_mlp() {
    const auto [weight, plain] = packs({layer.gate.tensor, layer.up.tensor});
    const Plans plans = plans_of(shape.hidden, {shape.ffn, shape.ffn});
    const Held bias(device, layer.mlp_bias), weights(device, layer.norm), x(device, some(shape.hidden)),
        out(device, some(shape.ffn));
    std::vector<float> expected = out.host;
    device.begin(plans.on_device)
        .gated_mlp(x.view(rows), {.weight = weights.data(), .epsilon = 1e-5f}, Linear{weight, bias.data(), product},
                   out.view(rows));
    reference.begin(plans.on_host)
        .gated_mlp(view_of(x.host, rows), {.weight = layer.norm.data(), .epsilon = 1e-5f},
                   Linear{plain, layer.mlp_bias.data(), product}, view_of(expected, rows));
    CHECK(worst(out.read(), expected) < 3 * tolerance);
  }

  /// Without a gate, with the other norm with a bias, and a divisor.
  void mlp() {
    const auto [weight, plain] = packs({layer.up.tensor});
    const Plans plans = plans_of(shape.hidden, {shape.ffn});
    std::vector<float> divisors = random.vector(static_cast<std::size_t>(shape.ffn));
    for (float& d : divisors) d = d < 0 ? d - 1 : d + 1;
    const Held bias(device, layer.mlp_bias), weights(device, layer.norm), x(device, some(shape.hidden)),
        out(device, some(shape.ffn)), divisor(device, divisors),
        norm_bias(device, random.vector(static_cast<std::size_t>(shape.hidden)));
    std::vector<float> expected = out.host;
    for (const ActivationKind kind : {ActivationKind::gelu_erf, ActivationKind::gelu_tanh, ActivationKind::relu}) {
      CAPTURE(name_of(kind));
      const auto norm = [](const float* w, const float* b) {
        return Norm{.weight = w, .epsilon = 1e-5f, .bias = b, .kind = NormKind::layer};
      };
      device.begin(plans.on_device)
          .mlp(x.view(rows), norm(weights.data(), norm_bias.data()), Linear{weight, bias.data(), product}, kind,
               divisor.data(), out.view(rows));
      reference.begin(plans.on_host)
          .mlp(view_of(x.host, rows), norm(layer.norm.data(), norm_bias.host.data()),
               Linear{plain, layer.mlp_bias.data(), product}, kind, divisors.data(), view_of(expected, rows));
      CHECK(worst(out.read(), expected) < 3 * tolerance);
    }
  }

  void qkv() {
    const Heads heads = shape.heads;
    const auto packed = packs({layer.q.tensor, layer.k.tensor, layer.v.tensor});
    const Held bias(device, layer.qkv_bias), weights(device, layer.norm), x(device, some(shape.hidden)),
        frequency(device, layer.inverse_frequency),
        head_norm(device, random.vector(static_cast<std::size_t>(heads.query * heads.dim)));
    const auto check = [&](int position, bool rotates, int width, float factor, float clip, QkNorm kind,
                           KvFormat format = KvFormat::f16) {
      CAPTURE(position, rotates, width, name_of(kind), std::string(name_of(format)));
      FormatCache plain_cache(heads, position + rows, format);
      DeviceCache<Device> cache(device, plain_cache);
      const std::int64_t kv = heads.kv * heads.dim;
      const Plans plans = plans_of(shape.hidden, {heads.query * heads.dim, kv, kv}, cache.table(), plain_cache.table(),
                                   position, format);
      const Held q(device, some(heads.query * heads.dim));
      std::vector<float> expected = q.host;
      const auto rope = [&](const float* of) {
        return Rope{.inverse_frequency = {rotates ? of : nullptr}, .width = width, .factor = factor};
      };
      const auto shaping = [&](const float* of) {
        const Norm norm{.weight = of,
                        .epsilon = 1e-5f,
                        .bias = kind == QkNorm::whole ? of : nullptr,
                        .kind = kind == QkNorm::whole ? NormKind::layer : NormKind::rms};
        return QkvShaping{.clip = clip, .norm = kind, .query = norm, .key = norm};
      };
      device.begin(plans.on_device)
          .qkv(x.view(rows), {.weight = weights.data(), .epsilon = 1e-5f}, Linear{packed.first, bias.data(), product},
               rope(frequency.data()), heads, cache.layer(), q.view(rows), shaping(head_norm.data()));
      reference.begin(plans.on_host)
          .qkv(view_of(x.host, rows), {.weight = layer.norm.data(), .epsilon = 1e-5f},
               Linear{packed.second, layer.qkv_bias.data(), product}, rope(layer.inverse_frequency.data()), heads,
               plain_cache.layer(), view_of(expected, rows), shaping(head_norm.host.data()));
      CHECK(worst(q.read(), expected) < 2 * tolerance);
      // One unit in the last place, for values close to a tie, of numbers of four times the root mean square.
      const double step = format == KvFormat::int8 ? 4.0 / 127 : format == KvFormat::bf16 ? 0x1p-6 : 0x1p-9;
      CHECK(worst(written(cache.read(), position), written(plain_cache, position)) < 2 * tolerance + step);
    };
    check(17, true, 0, 1, 0, QkNorm::none);
    check(120, true, 0, 1, 0.5f, QkNorm::none);  // the rows cross the end of a page
    check(3, false, 0, 1, 0, QkNorm::none);
    check(5, true, heads.dim / 4 * 2, 1.2f, 0, QkNorm::none);
    check(9, true, 0, 1, 0, QkNorm::per_head);
    check(9, true, 0, 1, 2, QkNorm::whole);
    for (const KvFormat format : {KvFormat::bf16, KvFormat::int8}) {
      check(60, true, 0, 1, 0.5f, QkNorm::none, format);
      check(9, true, heads.dim / 4 * 2, 1.2f, 2, QkNorm::per_head, format);
    }
  }

 private:
  static constexpr double tolerance = product_tolerance<Format>();

  /// Numbers for both backends.
  struct Held {
    mutable std::vector<float> host;
    mutable OnDevice<Device> on_device;
    Held(Device device, const std::vector<float>& values) : host(values), on_device(device, values) {}
    const float* data() const { return on_device.data(); }
    View<float, 2> view(int count) const { return on_device.rows(count); }
    std::vector<float> read() const { return on_device.read(); }
  };

  std::vector<float> some(int width) { return random.vector(static_cast<std::size_t>(rows * width)); }
  auto packs(const std::vector<Tensor>& tensors) {
    return std::pair{device.template pack<Format>(tensors), reference.template pack<Format>(tensors)};
  }

  /// The plan of all rows, for both backends.
  struct Plans {
    TestPlan on_device, on_host;
    std::unique_ptr<ProductAdapters<Device>> adapters;
  };
  Plans plans_of(std::int64_t in, const std::vector<std::int64_t>& parts, const std::vector<std::byte*>& pages = {},
                 const std::vector<std::byte*>& host_pages = {}, int position = 0, KvFormat format = KvFormat::f16) {
    Plans plans;
    plans.on_device.format = plans.on_host.format = format;
    if (adapted) plans.adapters = std::make_unique<ProductAdapters<Device>>(device, in, parts);
    for (int r = 0; r < rows; r += adapted ? 1 : rows) {
      const int count = adapted ? 1 : rows;
      plans.on_device.add(pages, count, position + r, adapted ? plans.adapters->on_device(r) : nullptr);
      plans.on_host.add(host_pages, count, position + r, adapted ? plans.adapters->on_host(r) : nullptr);
    }
    return plans;
  }

  /// The keys and values of the rows.
  std::vector<float> written(FormatCache& cache, int position) const {
    std::vector<float> all;
    for (int p = position; p < position + rows; ++p) {
      for (int h = 0; h < shape.heads.kv; ++h) {
        for (const bool keys : {true, false}) {
          const std::vector<float> row = cache.row(keys, h, p);
          all.insert(all.end(), row.begin(), row.end());
        }
      }
    }
    return all;
  }

  static constexpr int product = ProductAdapters<Device>::product;
  ProductShape shape;
  int rows;
  bool adapted;
  RandomLayer<Format> layer;
  Device device;
  backend::Reference reference;
  Random random{23};
};

/// The first and the last columns of a vocabulary that is not a power of two, and the last rows of its embedding.
template <class Device, class Format>
void check_vocabulary(Device device, int vocab) {
  constexpr int hidden = 32, rows = 2;
  const RandomTensor<Format> table(vocab, hidden, 7);
  const std::vector<Tensor> tensors{table.tensor};
  const auto weight = device.template pack<Format>(tensors);
  backend::Reference reference;
  const auto plain = reference.template pack<Format>(tensors);
  std::vector<float> x = Random(3).vector(rows * hidden), found(static_cast<std::size_t>(rows * vocab)),
                     expected(found);
  OnDevice<Device> on_device(device, x);
  const TestPlan plan(std::vector<Token>{vocab - 1, 0});
  device.begin(plan).logits(on_device.rows(rows), {.kind = NormKind::none}, Linear{weight}, view_of(found, rows));
  reference.begin(plan).logits(view_of(x, rows), {.kind = NormKind::none}, Linear{plain}, view_of(expected, rows));
  CHECK(worst(found, expected) < product_tolerance<Format>());
  device.begin(plan).embed(weight, on_device.rows(rows));
  reference.begin(plan).embed(plain, view_of(x, rows));
  CHECK(on_device.read() == x);
}

/// Products of fp32 weights of a large depth are as close to the exact ones as sums in fp32, of any sign and all
/// positive. Errors are the largest of 32 outputs, relative to their root mean square.
template <class Device>
void check_deep_sums(int depth) {
  constexpr int out = 32;
  for (const bool positive : {false, true}) {
    Random random(5);
    std::vector<float> weights = random.vector(static_cast<std::size_t>(out * depth)),
                       x = random.vector(static_cast<std::size_t>(depth));
    if (positive) {
      for (float& w : weights) w = std::abs(w);
      for (float& v : x) v = std::abs(v);
    }
    double squares = 0, of_floats = 0;
    std::vector<double> exact;
    for (int o = 0; o < out; ++o) {
      const float* const row = weights.data() + std::int64_t{o} * depth;
      double sum = 0;
      float narrow = 0;
      for (int k = 0; k < depth; ++k) {
        sum += double{row[k]} * double{x[static_cast<std::size_t>(k)]};
        narrow = std::fma(row[k], x[static_cast<std::size_t>(k)], narrow);
      }
      exact.push_back(sum);
      squares += sum * sum;
      of_floats = std::max(of_floats, std::abs(double{narrow} - sum));
    }
    const double rms = std::sqrt(squares / out);
    const Tensor tensor{.name = "weight",
                        .dtype = DType::f32,
                        .shape = {out, depth},
                        .bytes = reinterpret_cast<const std::byte*>(weights.data()),
                        .size_bytes = weights.size() * sizeof(float)};
    for (const int most : {1000, 0}) {  // rows of the variant for few rows
      Device device(backend::GpuOptions{.most_vector_rows = most});
      OnDevice<Device> from(device, x), to(device, std::vector<float>(out));
      const auto weight = device.template pack<Fp32>(std::vector<Tensor>{tensor});
      device.begin(plan_of(1)).project(from.rows(1), Linear{weight}, to.rows(1));
      const std::vector<float> found = to.read();
      double worst = 0;
      for (std::size_t o = 0; o < exact.size(); ++o) worst = std::max(worst, std::abs(double{found[o]} - exact[o]));
      CAPTURE(depth, positive, most, worst / rms, of_floats / rms);
      CHECK(worst <= of_floats);
    }
  }
}

template <class Device, class Format>
void check_products(int device) {
  for (const ProductShape& shape : product_shapes) {
    for (const int rows : shape.hidden > 100 ? std::vector<int>{3} : std::vector<int>{1, 9, 35}) {
      for (const int most : {1000, 0}) {  // rows of the variant for few rows
        CAPTURE(Format::name, shape.heads.dim, shape.hidden, rows, most, Device::name);
        ProductChecks<Device, Format> checks(shape, rows, {.device = device, .most_vector_rows = most});
        checks.project();
        if (rows < 35) checks.gated_mlp();
        if (rows < 35) checks.mlp();
        if (rows != 1) checks.qkv();
      }
    }
  }
}

/// The same products with adapters and with rows without.
template <class Device, class Format>
void check_adapted_products(int device) {
  for (const ProductShape& shape : product_shapes) {
    for (const int most : {1000, 0}) {
      const int rows = shape.hidden > 100 ? 3 : 9;
      CAPTURE(Format::name, shape.heads.dim, shape.hidden, rows, most, Device::name);
      ProductChecks<Device, Format> checks(shape, rows, {.device = device, .most_vector_rows = most}, true);
      checks.project();
      checks.gated_mlp();
      checks.mlp();
      checks.qkv();
    }
  }
}

}  // namespace slm::testing
