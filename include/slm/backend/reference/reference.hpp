// backend::Reference: plain loops with fp32 accumulation. Tests compare all other backends with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/dense_matrix.hpp"
#include "slm/backend/host_rows.hpp"
#include "slm/backend/kv_rows.hpp"
#include "slm/backend/mixed_matrix.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/backend/reference/experts.hpp"
#include "slm/backend/reference/recurrence.hpp"
#include "slm/backend/reference/row_functions.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// The operations of one step. Public members: those of the concept StepOf.
class ReferenceStep : public HostRows<ReferenceStep> {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  explicit ReferenceStep(const StepPlan& plan) : plan_(plan) {}

  int rows() const { return static_cast<int>(plan_.rows.size()); }
  Rows scratch(int index, std::int64_t width) { return scratch_of(index, rows(), width); }
  Rows scratch_of_outputs(int index, std::int64_t width) {
    return scratch_of(index, static_cast<std::int64_t>(plan_.outputs.size()), width);
  }

  template <class Body>
  void record(NothingRecorded&, Body&& body) {
    body();
  }

  template <class Matrix>
  void embed(const Matrix& table, Rows x, ConstRows positions = {}, int offset = 0) {
    held(table, [&](const auto& rows_of_table) {
      for (int r = 0; r < rows(); ++r) {
        const auto* row = rows_of_table.row(at(r).token < table.out ? at(r).token : 0);
        const int place = at(r).position + offset;
        for (std::int64_t i = 0; i < table.in; ++i)
          x(r, i) = to_float(row[i]) + (positions.data ? positions(place, i) : 0);
      }
    });
  }

  template <class Matrix>
  void embed_positions(const Matrix& table, int offset, Rows x) {
    held(table, [&](const auto& rows_of_table) {
      for (int r = 0; r < rows(); ++r) {
        const auto* row = rows_of_table.row(at(r).position + offset);
        for (std::int64_t i = 0; i < table.in; ++i) x(r, i) = to_float(row[i]);
      }
    });
  }

  void adapt_embedding(Rows x) {
    for (int r = 0; r < rows(); ++r) {
      const Adapter* adapter = sequence_of(at(r)).adapter;
      if (adapter == nullptr) continue;
      for (const LowRank& change : adapter->of(number_of(AdaptedProduct::embedding))) {
        std::vector<float> t(static_cast<std::size_t>(change.rank));
        visit_elements(change, [&]<class Element>(Element) {
          const auto* down = reinterpret_cast<const Element*>(change.down) + at(r).token;
          for (int j = 0; j < change.rank; ++j) t[j] = change.scale * to_float(down[j * change.in]);
        });
        add_up(change, t, x.row(r));
      }
    }
  }

  template <class Matrix>
  void qkv(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rope rope, Heads heads, KvLayer layer, Rows q,
           QkvShaping shaping = {}) {
    std::vector<float> projected = matmul(normalized(x, norm), linear);
    finish_qkv({projected.data(), rows(), linear.weight.out}, rope, heads, layer, q, shaping);
  }

  /// Finishes qkv after its product. Modifies the projections [rows, q | k | v].
  void finish_qkv(Rows projected, Rope rope, Heads heads, KvLayer layer, Rows q, QkvShaping shaping = {}) {
    const int parts = qkv_parts(projected.extent(1), heads);
    for (int r = 0; r < rows(); ++r) {
      const PlanRow& row = at(r);
      const float* frequencies = rope.inverse_frequency[sequence_of(row).rope];
      float* source = projected.row(r);
      const std::int64_t first = shaping.clips_normed ? std::int64_t{heads.query + heads.kv} * heads.dim : 0;
      for (std::int64_t i = first; shaping.clip != 0 && i < projected.extent(1); ++i)
        source[i] = std::clamp(source[i], -shaping.clip, shaping.clip);
      reference::shape_heads(source, heads.query, heads.dim, shaping, shaping.query, rope, frequencies, row.position);
      if (q.row(r) != source) std::copy_n(source, heads.query * heads.dim, q.row(r));
      if (parts == 1) continue;
      source += heads.query * heads.dim;
      const float* const values = parts == 3 ? source + heads.kv * heads.dim : source;
      std::vector<float> value(static_cast<std::size_t>(heads.dim));
      for (int h = 0; h < heads.kv && layer.values != layer.keys; ++h) {
        reference::normalize_row(values + h * heads.dim, heads.dim, shaping.value, value.data());
        kv_row(plan_, row.sequence, layer.kind, layer.values, heads.dim, h, row.position).put(value.data());
      }
      reference::shape_heads(source, heads.kv, heads.dim, shaping, shaping.key, rope, frequencies, row.position);
      for (int h = 0; h < heads.kv; ++h, source += heads.dim)
        kv_row(plan_, row.sequence, layer.kind, layer.keys, heads.dim, h, row.position).put(source);
    }
  }

  void attend(ConstRows q, Heads heads, KvLayer layer, Rows out, Attention attention = {}) {
    for (int r = 0; r < rows(); ++r) {
      const PlanRow& row = at(r);
      const int last = row.position;
      const float scale = attention.scale_at(last, heads.dim);
      const int first = attention.window != 0 ? std::max(0, last + 1 - attention.window) : 0;
      std::vector<float> weights(last + 1 - first), entry(static_cast<std::size_t>(heads.dim));
      for (int h = 0; h < heads.query; ++h) {
        const int kv_head = h / (heads.query / heads.kv);
        float largest = -std::numeric_limits<float>::infinity();
        for (int j = first; j <= last; ++j) {
          kv_row(plan_, row.sequence, layer.kind, layer.keys, heads.dim, kv_head, j).get(entry.data());
          float score = 0;
          for (int i = 0; i < heads.dim; ++i) score += q(r, h * heads.dim + i) * entry[i];
          score *= scale;
          if (attention.cap != 0) score = attention.cap * std::tanh(score / attention.cap);
          if (attention.slopes) score += attention.slopes[h] * static_cast<float>(j - last);
          weights[j - first] = score;
          largest = std::max(largest, score);
        }
        float sum = 0;
        for (float& weight : weights) sum += weight = std::exp(weight - largest);
        if (attention.sinks) sum += std::exp(attention.sinks[h] - largest);
        float* const mixed = &out(r, h * heads.dim);
        std::fill_n(mixed, heads.dim, 0.0f);
        for (int j = first; j <= last; ++j) {
          kv_row(plan_, row.sequence, layer.kind, layer.values, heads.dim, kv_head, j).get(entry.data());
          for (int i = 0; i < heads.dim; ++i) mixed[i] += weights[j - first] * entry[i];
        }
        for (int i = 0; i < heads.dim; ++i) mixed[i] /= sum;
      }
    }
  }

  template <class Matrix>
  void project(ConstRows input, const Linear<Matrix>& linear, Rows x, float factor = 1) {
    const std::vector<float> projected = matmul(copy_of(input), linear);
    for (std::size_t i = 0; i < projected.size(); ++i) x.data[i] += factor * projected[i];
  }

  void scale(Rows x, float factor) {
    for (std::int64_t i = 0; i < x.size(); ++i) x.data[i] *= factor;
  }

  void add(Rows branch, Norm norm, Rows x) {
    const std::vector<float> rows = normalized(branch, norm);
    for (std::size_t i = 0; i < rows.size(); ++i) x.data[i] += rows[i];
  }

  template <class Matrix>
  void gated_mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out,
                 Activation activation = ActivationKind::silu) {
    const std::int64_t ffn = out.extent(1);
    const std::vector<float> projected = matmul(normalized(x, norm), linear);
    for (int r = 0; r < x.extent(0); ++r) {
      const float* gate = &projected[r * 2 * ffn];
      const float* up = gate + ffn;
      for (std::int64_t i = 0; i < ffn; ++i)
        out(r, i) = reference::activate(activation, activation.factor * gate[i]) * up[i];
    }
  }

  template <class Matrix>
  void mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Activation activation, const float* divisor,
           Rows out) {
    const std::int64_t width = linear.weight.out;
    const std::vector<float> projected = matmul(normalized(x, norm), linear);
    for (int r = 0; r < x.extent(0); ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        const float y = reference::activate(activation, projected[r * width + i]);
        out(r, i) = divisor ? y / divisor[i] : y;
      }
    }
  }

  template <class Matrix, class Router>
  void add_mixture(ConstRows x, Norm norm, const Mixture<Matrix, Router>& mixture, Rows to, float factor = 1) {
    const auto product = [this](const auto& weight, const float* bias, const std::vector<float>& row) {
      return matmul(row, Linear{weight, bias});
    };
    std::vector<float> row(static_cast<std::size_t>(x.extent(1))), routed = row;
    for (int r = 0; r < x.extent(0); ++r) {
      reference::normalize_row(x.row(r), x.extent(1), norm, row.data());
      reference::normalize_row(x.row(r), x.extent(1), mixture.router_norm.value_or(norm), routed.data());
      reference::add_experts(mixture, row, routed, factor, to.row(r), product);
    }
  }

  void normalize(Rows x, Norm norm) {
    for (std::int64_t r = 0; r < x.extent(0); ++r) reference::normalize_row(x.row(r), x.extent(1), norm, x.row(r));
  }

  template <class Matrix>
  void multiply_heads(ConstRows x, const Matrix& weight, int heads, Rows out) {
    const HeadProducts shape(x, weight, heads, out);
    held(weight, [&](const auto& matrix) {
      for (std::int64_t r = 0; r < x.extent(0); ++r) {
        for (int h = 0; h < heads; ++h) {
          const float* const input = x.row(r) + h * shape.width + shape.first;
          float* const result = out.row(r) + h * shape.out_width + shape.kept;
          std::copy_n(input - shape.kept, shape.kept, result - shape.kept);
          for (std::int64_t o = 0; o < shape.outputs; ++o) {
            const auto* const row = matrix.row(h * shape.outputs + o);
            float sum = 0;
            for (std::int64_t i = 0; i < weight.in; ++i) sum += input[i] * to_float(row[i]);
            result[o] = sum;
          }
        }
      }
    });
  }

  void recur(Rows projected, const Recurrence& recurrence, std::int64_t state, Rows out) {
    const auto each = [](int count, double, const auto& task) {
      for (int index = 0; index < count; ++index) task(index);
    };
    recurrent::recur(plan_, projected, recurrence, state, out, reference::RecurrenceMath{}, each);
  }

  void select(ConstRows x, Rows out) {
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i)
      std::copy_n(x.row(plan_.outputs[i]), x.extent(1), out.row(static_cast<std::int64_t>(i)));
  }

  template <class Matrix>
  void logits(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out, Activation activation = {}) {
    const std::vector<float> rows = matmul(normalized(x, norm), linear);
    const std::int64_t width = out.extent(1);
    for (std::int64_t r = 0; r < out.extent(0); ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        out.row(r)[i] = reference::activate(activation, rows[static_cast<std::size_t>(r * width + i)]);
      }
    }
  }

  void read(ConstRows x, Rows out) { std::copy_n(x.data, x.size(), out.data); }

 private:
  friend class HostRows<ReferenceStep>;

  template <class Use>
  void each_row(Rows x, const Use& use) {
    for (std::int64_t r = 0; r < x.extent(0); ++r) use(r);
  }

  static void activate_row(const Activation& activation, const float* gate, const float* up, std::int64_t width,
                           float* out) {
    for (std::int64_t i = 0; i < width; ++i) out[i] = reference::activate(activation, gate[i]) * up[i];
  }

  const PlanRow& at(int row) const { return plan_.rows[static_cast<std::size_t>(row)]; }
  const PlanSequence& sequence_of(const PlanRow& row) const {
    return plan_.sequences[static_cast<std::size_t>(row.sequence)];
  }

  Rows scratch_of(int index, std::int64_t count, std::int64_t width) {
    std::vector<float>& buffer = scratch_[index];
    buffer.resize(static_cast<std::size_t>(count * width));
    return {buffer.data(), count, width};
  }

  static std::vector<float> normalized(View<const float, 2> x, Norm norm) {
    const std::int64_t width = x.extent(1);
    std::vector<float> out(static_cast<std::size_t>(x.size()));
    for (int r = 0; r < x.extent(0); ++r) reference::normalize_row(x.row(r), width, norm, &out[r * width]);
    return out;
  }

  /// Calls use(matrix) with the held dense matrix.
  template <class Matrix, class Use>
  static void held(const Matrix& matrix, Use use) {
    if constexpr (is_mixed<Matrix>) {
      matrix.visit(use);
    } else {
      use(matrix);
    }
  }

  static std::vector<float> copy_of(ConstRows x) { return {x.data, x.data + x.size()}; }

  /// x [rows, in] . weight^T [in, out] + bias -> [rows, out], plus the contributions of the rows' adapters
  template <class Matrix>
  std::vector<float> matmul(const std::vector<float>& x, const Linear<Matrix>& linear) const {
    const std::int64_t in = linear.weight.in, width = linear.weight.out;
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / in;
    std::vector<float> out(static_cast<std::size_t>(rows * width));
    held(linear.weight, [&](const auto& weight) {
      for (std::int64_t o = 0; o < width; ++o) {
        const auto* row = weight.row(o);
        for (std::int64_t r = 0; r < rows; ++r) {
          float sum = 0;
          for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * to_float(row[i]);
          out[r * width + o] = linear.bias ? sum + linear.bias[o] : sum;
        }
      }
    });
    for (std::int64_t r = 0; linear.product >= 0 && has_adapters(plan_) && r < rows; ++r) {
      const Adapter* adapter = adapter_of(plan_, r, rows);
      if (adapter == nullptr) continue;
      for (const LowRank& change : adapter->of(linear.product)) {
        std::vector<float> t(static_cast<std::size_t>(change.rank));
        visit_elements(change, [&]<class Element>(Element) {
          const auto* down = reinterpret_cast<const Element*>(change.down);
          for (int j = 0; j < change.rank; ++j) {
            float sum = 0;
            for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * to_float(down[j * in + i]);
            t[j] = change.scale * sum;
          }
        });
        add_up(change, t, &out[r * width]);
      }
    }
    return out;
  }

  /// The `up` product of a change: y += t . up
  static void add_up(const LowRank& change, const std::vector<float>& t, float* y) {
    visit_elements(change, [&]<class Element>(Element) {
      const auto* up = reinterpret_cast<const Element*>(change.up);
      for (std::int64_t o = 0; o < change.out; ++o) {
        for (int j = 0; j < change.rank; ++j) y[change.first + o] += t[j] * to_float(up[j * change.out + o]);
      }
    });
  }

  StepPlan plan_;
  std::vector<float> scratch_[scratch_buffers];
};

namespace reference {
template <class Format>
struct MatrixOf {
  using type = MixedMatrix<>;
};
template <DenseFormat Format>
struct MatrixOf<Format> {
  using type = DenseMatrix<Format>;
};
}  // namespace reference

class Reference {
 public:
  static constexpr const char* name = "reference";
  static constexpr int max_rows = 64;
  static constexpr bool chooses = false;
  static constexpr bool own_memory = false;
  using Activation = float;
  static constexpr auto kv_formats = slm::kv_formats;
  using Recorded = NothingRecorded;
  template <class T>
  using Buffer = std::vector<T>;
  template <class Format>
  using Matrix = typename reference::MatrixOf<Format>::type;  // codes are dequantized

  /// See Products::arithmetic().
  std::uint64_t arithmetic() const noexcept { return 0; }

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(count);
  }

  Buffer<float> upload(const float* host, std::size_t count) { return Buffer<float>(host, host + count); }

  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    if constexpr (DenseFormat<Format>) {
      return Matrix<Format>::stack(sources);
    } else {
      return Matrix<Format>::dense(sources);
    }
  }

  Adapter place(const Adapter& adapter) { return adapter; }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) { std::memcpy(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) { std::memcpy(to, host, bytes); }

  ReferenceStep begin(const StepPlan& plan) { return ReferenceStep(plan); }
};

static_assert(Backend<Reference> && RecurrentStep<ReferenceStep> && ShapesLayers<ReferenceStep> &&
              AttendsLatents<Reference> && MixesStreams<Reference>);

}}}
