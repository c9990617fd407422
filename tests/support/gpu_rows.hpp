// Operations of backend::Gpu for layers of different shapes against Reference, whose operations are plain loops. The
// same bodies run on emulated and real devices.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "support/gpu_layer.hpp"

namespace slm::testing {

/// x times rows that are adjacent, apart, or one for all.
template <class Device>
void check_multiplied_rows(int device) {
  constexpr int rows = 5, width = 37;
  for (const int stride : {width, 3 * width, 0}) {
    CAPTURE(stride);
    const std::vector<float> x = Random(3).vector(rows * width), by = Random(4).vector(rows * 3 * width);
    Device on(device);
    OnDevice<Device> found(on, x), factors(on, by);
    View<const float, 2> strided{factors.data(), rows, width};
    strided.strides[0] = stride;
    on.begin(plan_of(rows)).multiply_rows(found.rows(rows), strided);
    std::vector<float> expected = x;
    for (int r = 0; r < rows; ++r) {
      for (int k = 0; k < width; ++k)
        expected[static_cast<std::size_t>(r * width + k)] *= by[static_cast<std::size_t>(r * stride + k)];
    }
    CHECK(found.read() == expected);
  }
}

struct PartsCase {
  Heads heads;
  int parts;               // of the product, see qkv_parts()
  QkNorm norm;             // of queries and keys
  bool normed_values;      // values have a norm
  bool own_values = true;  // values are stored beside the keys
  bool in_place = false;   // q is the memory of the product
  bool pairs = false;      // neighbouring dimensions rotate
  int rotating = 0;        // 0: all
};
inline const std::vector<PartsCase> parts_cases{{{4, 2, 12}, 3, QkNorm::per_head, true},
                                                {{4, 2, 12}, 3, QkNorm::none, true},
                                                {{3, 3, 32}, 2, QkNorm::per_head, true},
                                                {{2, 1, 300}, 2, QkNorm::none, false},
                                                {{4, 2, 20}, 1, QkNorm::per_head, true},
                                                {{2, 1, 32}, 1, QkNorm::none, false},
                                                {{4, 1, 24}, 2, QkNorm::none, false, false, true, true, 8},
                                                {{2, 1, 18}, 2, QkNorm::none, false, false, true, false, 2}};

/// Queries, and keys and values in pages, from products with all of their parts or without some.
template <class Device>
void check_qkv_parts(int device, KvFormat format) {
  constexpr int rows = 5, position = 62;
  for (const PartsCase& c : parts_cases) {
    const Heads heads = c.heads;
    CAPTURE(heads.query, heads.dim, c.parts, c.normed_values, c.own_values, std::string(name_of(format)));
    const int queries = heads.query * heads.dim, width = queries + (c.parts - 1) * heads.kv * heads.dim;
    Random random(7);
    std::vector<float> projected = random.vector(static_cast<std::size_t>(rows * width)), frequencies,
                       norms = random.vector(static_cast<std::size_t>(heads.dim));
    for (int i = 0; i < heads.dim / 2; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + i));
    FormatCache cache(heads, position + rows, format);
    Device on(device);
    DeviceCache<Device> pages(on, cache);
    OnDevice<Device> from(on, projected), angles(on, frequencies), weights(on, norms),
        q(on, std::vector<float>(static_cast<std::size_t>(rows * queries)));
    KvLayer layer = cache.layer();
    if (!c.own_values) layer.values = layer.keys;
    const auto finish = [&](auto& step, View<float, 2> product, View<float, 2> to, const float* frequency,
                            const float* norm) {
      if (c.in_place) to = product, to.extents[1] = queries;
      const Norm of_heads{.weight = norm, .epsilon = 1e-5f};
      QkvShaping shaping{.norm = c.norm, .query = of_heads, .key = of_heads};
      if (c.normed_values) shaping.value = {.epsilon = 1e-5f};
      step.finish_qkv(product, {.inverse_frequency = {frequency, frequency}, .width = c.rotating, .pairs = c.pairs},
                      heads, layer, to, shaping);
    };
    TestPlan plan;
    plan.format = format;
    plan.add(pages.table(), rows, position);
    {
      auto step = on.begin(plan);
      finish(step, from.rows(rows), q.rows(rows), angles.data(), weights.data());
    }
    std::vector<float> expected(static_cast<std::size_t>(rows * queries));
    {
      const TestPlan of_cache = cache.plan(rows, position);
      auto step = backend::Reference{}.begin(of_cache);
      finish(step, view_of(projected, rows), view_of(expected, rows), frequencies.data(), norms.data());
    }
    const auto queries_of = [&](const std::vector<float>& all) {
      std::vector<float> of_rows;
      for (std::size_t r = 0; r < rows; ++r) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(r * all.size() / rows);
        of_rows.insert(of_rows.end(), first, first + queries);
      }
      return of_rows;
    };
    CHECK(worst(queries_of(c.in_place ? from.read() : q.read()), queries_of(c.in_place ? projected : expected)) < 1e-5);
    if (c.parts == 1) continue;
    FormatCache& found = pages.read();
    for (int r = 0; r < rows; ++r) {
      for (int head = 0; head < heads.kv; ++head) {
        for (const bool keys : {true, false}) {
          if (!keys && !c.own_values) continue;
          // A number close to a tie is stored as its other neighbour.
          CHECK(worst(found.row(keys, head, position + r), cache.row(keys, head, position + r)) < 0.03);
        }
      }
    }
  }
}

/// Every operation of residual streams, of which one row is almost zero.
template <class Device>
void check_streams(int device) {
  constexpr int rows = 5;
  for (const int width : {37, 64}) {
    for (const int count : {2, 4, 16}) {
      CAPTURE(width, count);
      Random random(7);
      const auto some = [&](int columns, float scale = 1) {
        return random.vector(static_cast<std::size_t>(rows * columns), scale);
      };
      std::vector<float> streams = some(count * width), x = some(width), like = some(width),
                         mixing = some(count * count), correction = some(count), gate_up = some(2 * width),
                         out = some(width);
      for (int k = 0; k < width; ++k) x[static_cast<std::size_t>(k)] *= 1e-4f;
      Device on(device);
      OnDevice<Device> own_streams(on, streams), own_x(on, x), own_like(on, like), own_mixing(on, mixing),
          own_correction(on, correction), own_gate_up(on, gate_up), own_out(on, out), copied(on, out);
      const auto use = [](auto& step, const auto& view) {
        step.copy_rows(view(0, rows), view(7, rows));
        step.match_rows(view(0, rows), view(1, rows));
        step.mix_streams(view(2, 0), view(3, rows));
        step.correct_streams(view(2, 0), view(4, rows), view(1, rows));
        step.gate_some(view(5, rows), 0.4f, ActivationKind::gelu_tanh, view(6, rows));
      };
      const TestPlan plan = plan_of(rows);
      {
        OnDevice<Device>* const all[] = {&own_x,          &own_like,    &own_streams, &own_mixing,
                                         &own_correction, &own_gate_up, &own_out,     &copied};
        auto step = on.begin(plan);
        use(step, [&](int index, int count_of_rows) {
          return all[index]->rows(count_of_rows != 0 ? count_of_rows : count * rows);
        });
      }
      const std::vector<float> original = x;
      std::vector<float> copy(x.size());
      {
        std::vector<float>* const all[] = {&x, &like, &streams, &mixing, &correction, &gate_up, &out, &copy};
        auto step = backend::Reference{}.begin(plan);
        use(step, [&](int index, int count_of_rows) {
          return view_of(*all[index], count_of_rows != 0 ? count_of_rows : count * rows);
        });
      }
      CHECK(copied.read() == original);
      CHECK(worst(own_x.read(), x) < 1e-5);
      CHECK(worst(own_streams.read(), streams) < 1e-5);
      CHECK(worst(own_out.read(), out) < 1e-5);
    }
  }
}

struct HeadsCase {
  int heads, width, in;    // of x
  int out_width, outputs;  // of out
  int gap;                 // numbers between two rows of each
};
inline const std::vector<HeadsCase> heads_cases{{4, 20, 12, 24, 16, 24},
                                                {4, 24, 16, 10, 10, 0},
                                                {3, 40, 37, 40, 37, 3},
                                                {5, 6, 6, 3, 3, 1},
                                                {2, 112, 96, 80, 64, 0}};

/// The products of heads by separate matrices, and the same bits for a row alone.
template <class Device, class Format>
void check_head_products(int device) {
  for (const HeadsCase& c : heads_cases) {
    for (const int rows : {1, 9, 35}) {
      CAPTURE(c.heads, c.in, c.outputs, rows, Format::name, Device::name);
      const RandomTensor<Format> source(c.heads * c.outputs, c.in, 3);
      const std::vector<Tensor> tensors{source.tensor};
      const int stride = c.heads * c.width + c.gap, out_stride = c.heads * c.out_width + c.gap;
      std::vector<float> x = Random(5).vector(static_cast<std::size_t>(rows * stride)),
                         expected(static_cast<std::size_t>(rows * out_stride), 7.0f);
      Device on(device);
      const auto weight = on.template pack<Format>(tensors);
      const auto multiply = [&](auto&& step, const auto& matrix, View<float, 2> from, View<float, 2> to) {
        from.extents[1] = c.heads * c.width;
        to.extents[1] = c.heads * c.out_width;
        step.multiply_heads(from, matrix, c.heads, to);
      };
      OnDevice<Device> from(on, x), to(on, expected);
      multiply(on.begin(plan_of(rows)), weight, from.rows(rows), to.rows(rows));
      const std::vector<float> found = to.read();
      backend::Reference reference;
      multiply(reference.begin(plan_of(rows)), reference.template pack<Format>(tensors), view_of(x, rows),
               view_of(expected, rows));
      CHECK(worst(found, expected) < product_tolerance<Format>());
      if (rows == 1) continue;
      const int last = rows - 1;
      OnDevice<Device> one(on, std::vector<float>(x.end() - stride, x.end())),
          alone(on, std::vector<float>(static_cast<std::size_t>(out_stride), 7.0f));
      multiply(on.begin(plan_of(1)), weight, one.rows(1), alone.rows(1));
      CHECK(alone.read() == std::vector<float>(found.begin() + last * out_stride, found.end()));
    }
  }
}

/// Products and norms of rows that are apart, at any address.
template <class Device>
void check_rows_apart(int device) {
  constexpr int rows = 3, in = 24, out = 20;
  const RandomTensor<Fp32> source(out, in, 3);
  const std::vector<Tensor> tensors{source.tensor};
  for (const int gap : {1, 4}) {
    CAPTURE(gap);
    const std::vector<float> x = Random(5).vector(rows * in);
    std::vector<float> given = x, expected(static_cast<std::size_t>(rows * (out + gap)), 7.0f);
    Device on(device);
    OnDevice<Device> from(on, x), to(on, expected);
    const auto compute = [&](auto&& step, const auto& weight, View<float, 2> input, View<float, 2> result) {
      result.data += gap;
      result.extents[1] = out;
      step.mlp(input, {.kind = NormKind::none}, Linear{weight}, ActivationKind::identity, nullptr, result);
      step.normalize(result, {.epsilon = 1e-5f});
    };
    compute(on.begin(plan_of(rows)), on.template pack<Fp32>(tensors), from.rows(rows), to.rows(rows));
    const std::vector<float> product = expected;
    backend::Reference reference;
    std::vector<float> dense(rows * out);
    const auto weight = reference.template pack<Fp32>(tensors);
    reference.begin(plan_of(rows))
        .mlp(view_of(given, rows), {.kind = NormKind::none}, Linear{weight}, ActivationKind::identity, nullptr,
             view_of(dense, rows));
    reference.begin(plan_of(rows)).normalize(view_of(dense, rows), {.epsilon = 1e-5f});
    for (int r = 0; r < rows; ++r) std::copy_n(dense.begin() + r * out, out, expected.begin() + r * (out + gap) + gap);
    CHECK(worst(to.read(), expected) < 1e-5);
  }
}

/// Tokens beyond a table have its first row.
template <class Device>
void check_short_table(int device) {
  constexpr int rows = 20, width = 24;
  const RandomTensor<Fp32> table(rows, width, 7);
  const std::vector<Tensor> tensors{table.tensor};
  Device on(device);
  const auto short_table = on.template pack<Fp32>(tensors);
  OnDevice<Device> found(on, std::vector<float>(3 * width));
  on.begin(TestPlan(std::vector<Token>{rows, 3, rows + 40})).embed(short_table, found.rows(3));
  const auto* const numbers = reinterpret_cast<const float*>(table.tensor.bytes);
  std::vector<float> expected(numbers, numbers + width);
  expected.insert(expected.end(), numbers + 3 * width, numbers + 4 * width);
  expected.insert(expected.end(), numbers, numbers + width);
  CHECK(found.read() == expected);
}

}  // namespace slm::testing
