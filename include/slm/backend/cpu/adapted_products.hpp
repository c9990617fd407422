// AdaptedProducts: products of a step whose rows may have adapters: y += (scale * down . x) . up in addition to y = W
// x.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/products.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// The `down` products run over adjacent rows with the same adapter. The `up` products are added to the outputs of a
/// task while these are in the cache, in rank order. A row's result therefore depends only on itself and its adapter.
/// Steps without adapters have no overhead.
class AdaptedProducts : protected Products {
 protected:
  AdaptedProducts(const Products& device, const StepPlan& plan)
      : Products(device), plan_(plan), adapted_(has_adapters(plan)) {}

  /// Packs norm(x), or x, for the weight's kernels, and computes the `down` products of the product's changes.
  template <class Matrix>
  const float* pack(const Linear<Matrix>& linear, View<const float, 2> x, const Norm* norm) {
    if (adapted_) shrink(linear.product, x, norm);
    return pack_rows(linear.weight, x, norm);
  }

  /// out[r, i] = packed row r . weight row first + i, plus the contribution of the row's adapter.
  template <class Matrix>
  void multiply(const Linear<Matrix>& linear, std::int64_t first, int count, const float* packed, int rows, float* out,
                std::int64_t out_stride, const Thread& thread) const {
    Products::multiply(linear.weight, first, count, packed, rows, out, out_stride, thread);
    if (adapted_) expand(linear.product, first, count, out, out_stride);
  }

  void adapt_tokens(View<float, 2> x) {
    for (std::int64_t r = 0; adapted_ && r < x.extent(0); ++r) {
      const Adapter* adapter = adapter_of(plan_, r, x.extent(0));
      if (adapter == nullptr) continue;
      for (const LowRank& change : adapter->of(number_of(AdaptedProduct::embedding))) {
        State::grow(state_->low_rank, static_cast<std::size_t>(change.rank));
        float* const t = state_->low_rank.data();
        visit_elements(change, [&]<class Element>(Element) {
          const auto* down = reinterpret_cast<const Element*>(change.down);
          const Token token = plan_.rows[static_cast<std::size_t>(r)].token;
          for (int j = 0; j < change.rank; ++j) t[j] = change.scale * to_float(down[j * change.in + token]);
        });
        expand_row(change, t, 0, x.extent(1), x.row(r));
      }
    }
  }

  StepPlan plan_;

 private:
  static constexpr int most_run = 32;  // rows per task

  /// low_rank[r] = scale * down . norm(x[r]) of all changes of the product for the row, concatenated.
  void shrink(int product, View<const float, 2> x, const Norm* norm) {
    std::vector<AdaptedRun>& runs = state_->runs;
    runs.clear();
    int width = 0;
    double multiplies = 0;
    for (std::int64_t r = 0; product >= 0 && r < x.extent(0); ++r) {
      const Adapter* adapter = adapter_of(plan_, r, x.extent(0));
      const std::span<const LowRank> changes = adapter == nullptr ? std::span<const LowRank>{} : adapter->of(product);
      if (changes.empty()) continue;
      if (!runs.empty() && runs.back().changes.data() == changes.data() && runs.back().first + runs.back().rows == r &&
          runs.back().rows < most_run) {
        ++runs.back().rows;
      } else {
        runs.push_back({changes, r, 1});
      }
      int ranks = 0;
      for (const LowRank& change : changes) ranks += change.rank;
      width = std::max(width, ranks);
      multiplies += static_cast<double>(ranks) * static_cast<double>(x.extent(1));
    }
    if (runs.empty()) return;
    low_rank_width_ = width;
    State::grow(state_->low_rank, static_cast<std::size_t>(x.extent(0) * width));
    state_->reserve_scratch(matmul_scratch(x.extent(1)) + most_packed(x.extent(1)));
    run(static_cast<int>(runs.size()), multiplies / multiplies_per_ns, [&](std::uint32_t index, int worker) {
      const AdaptedRun& one = runs[index];
      float* out = low_rank(one.first);
      for (const LowRank& change : one.changes) {
        visit_elements(change, [&]<class Element>(Element) {
          float* const scratch = state_->scratch[static_cast<std::size_t>(worker)].data();
          const bool packed = &change != one.changes.data() && change.type == (&change - 1)->type;
          if (!packed) pack_run<Element>(one, x, norm, scratch);
          shrink_run<Element>(change, one, out, scratch);
        });
        out += change.rank;
      }
    });
  }

  /// Packs the run's rows after the kernels' scratch memory.
  template <class Element>
  void pack_run(const AdaptedRun& one, View<const float, 2> x, const Norm* norm, float* scratch) const {
    const MatmulKernels<Element>& kernels = matmul_kernels<Element>(state_->isa);
    PackTask task;
    task.x = x.row(one.first);
    task.x_stride = x.stride(0);
    task.in = x.extent(1);
    if (norm != nullptr) task.norm = *norm;
    task.rows = one.rows;
    task.last_block = kernels.blocks(one.rows).blocks;
    task.packed = scratch + matmul_scratch(task.in);
    kernels.pack(task);
  }

  template <class Element>
  void shrink_run(const LowRank& change, const AdaptedRun& one, float* out, float* scratch) const {
    const MatmulKernels<Element>& kernels = matmul_kernels<Element>(state_->isa);
    if (kernels.begin != nullptr) kernels.begin();
    for (int first = 0; first < change.rank; first += most_matmul_rows) {
      MatmulTask<Element> task;
      task.weight = reinterpret_cast<const Element*>(change.down) + first * change.in;
      task.in = change.in;
      task.count = std::min(most_matmul_rows, change.rank - first);
      task.packed = scratch + matmul_scratch(change.in);
      task.rows = one.rows;
      task.out = out + first;
      task.out_stride = low_rank_width_;
      task.scratch = scratch;
      kernels.matmul(task);
    }
    if (kernels.end != nullptr) kernels.end();
    for (int r = 0; r < one.rows; ++r) {
      float* const t = out + std::int64_t{r} * low_rank_width_;
      for (int j = 0; j < change.rank; ++j) t[j] *= change.scale;
    }
  }

  /// Adds the `up` products of the last shrink() to outputs first.. first + count - 1 of all rows.
  void expand(int product, std::int64_t first, int count, float* out, std::int64_t out_stride) const {
    if (product < 0) return;
    for (const AdaptedRun& one : state_->runs) {
      for (std::int64_t r = one.first; r < one.first + one.rows; ++r) {
        const float* t = low_rank(r);
        for (const LowRank& change : one.changes) {
          const std::int64_t from = std::max(first, change.first);
          const std::int64_t to = std::min(first + count, change.first + change.out);
          if (from < to) expand_row(change, t, from - change.first, to - from, out + r * out_stride + (from - first));
          t += change.rank;
        }
      }
    }
  }

  /// y[i] += t . up[first + i]
  void expand_row(const LowRank& change, const float* t, std::int64_t first, std::int64_t count, float* y) const {
    visit_elements(change, [&]<class Element>(Element) {
      const auto* up = reinterpret_cast<const Element*>(change.up) + first;
      matmul_kernels<Element>(state_->isa).add_rows(t, up, change.out, change.rank, count, y);
    });
  }

  float* low_rank(std::int64_t row) const { return state_->low_rank.data() + row * low_rank_width_; }

  /// Floats for a run's packed rows, for any kernel.
  std::size_t most_packed(std::int64_t in) const {
    return static_cast<std::size_t>(std::max({matmul_kernels<float>(state_->isa).packed_floats(most_run, in),
                                              matmul_kernels<half_t>(state_->isa).packed_floats(most_run, in),
                                              matmul_kernels<bfloat16_t>(state_->isa).packed_floats(most_run, in)}));
  }

  bool adapted_;
  int low_rank_width_ = 0;
};

}}}
