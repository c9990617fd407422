// ExpertProducts: mixtures of experts on the CPU. A step groups its rows by expert, so that it reads the weights of
// each chosen expert once and those of the others never. A row's result does not depend on the other rows of its
// groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "slm/backend/cpu/adapted_products.hpp"
#include "slm/backend/expert_shares.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/core/rounded_math.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

class ExpertProducts : protected AdaptedProducts {
 public:
  static constexpr bool shares_experts = true;

  /// shares: see SharesExperts.
  template <class Matrix, class Router, class Shares = WholeExperts>
  void add_mixture(View<const float, 2> x, Norm norm, const Mixture<Matrix, Router>& mixture, View<float, 2> to,
                   float factor = 1, const Shares& shares = {}) {
    const std::int64_t rows = x.extent(0), hidden = x.extent(1);
    const View<float, 2> normed = view_of(scratch().normed, rows, hidden);
    const auto normalize = [&](const Norm& by) {
      each_row(rows, hidden, [&](std::int64_t r) { kernels().normalize(by, x.row(r), hidden, normed.row(r)); });
    };
    normalize(mixture.router_norm.value_or(norm));
    route(mixture, normed);
    if (mixture.router_norm) normalize(norm);
    scratch().group(static_cast<int>(mixture.experts.size()));
    const View<float, 2> gathered =
        view_of(scratch().gathered, static_cast<std::int64_t>(scratch().places.size()), hidden);
    const int of_row = mixture.experts_of_row();
    each_row(rows, hidden * of_row, [&](std::int64_t r) {
      for (int j = 0; j < of_row; ++j) std::copy_n(normed.row(r), hidden, gathered.row(place_of(r, j, of_row)));
    });
    run_gates(mixture, gathered, rows == 1, shares);
    run_downs(mixture, gathered, shares);
    each_row(rows, hidden * of_row, [&](std::int64_t r) {
      float *const sum = normed.row(r), *const added = to.row(r);
      std::fill_n(sum, hidden, 0.0f);
      for (int j = 0; j < of_row; ++j) {
        const float* const result = gathered.row(place_of(r, j, of_row));
        const float weight = scratch().choices[static_cast<std::size_t>(r * of_row + j)].weight;
        for (std::int64_t i = 0; i < hidden; ++i) sum[i] += weight * result[i];
      }
      if (mixture.output_norm.kind != NormKind::none) kernels().normalize(mixture.output_norm, sum, hidden, sum);
      for (std::int64_t i = 0; i < hidden; ++i) added[i] += factor * sum[i];
    });
  }

 protected:
  using AdaptedProducts::AdaptedProducts;

  template <class Weight, class Use>
  static decltype(auto) visit_held(const Weight& weight, Use&& use) {
    if constexpr (is_mixed<Weight>) {
      return weight.visit(use);
    } else {
      return use(weight);
    }
  }

  template <class Weight>
  std::int64_t packed_floats(const Weight& weight, int rows) const {
    return visit_held(weight, [&](const auto& held) {
      std::int64_t floats = kernels_for(held).packed_floats(rows, held.in);
      if constexpr (requires { held.packings; }) floats *= static_cast<std::int64_t>(held.packings.size());
      return padded(floats);
    });
  }

  template <class Weight>
  void pack_to(const Weight& weight, View<const float, 2> x, float* to) const {
    visit_held(weight, [&](const auto& held) {
      const auto& kernels = kernels_for(held);
      PackTask task;
      task.x = x.data;
      task.x_stride = x.stride(0);
      task.in = x.extent(1);
      task.rows = static_cast<int>(x.extent(0));
      task.packed = to;
      if constexpr (requires { held.packings; }) {
        for (const std::size_t segment : held.packings) {
          task.weight = &held.segments[segment].tiles;
          task.last_block = kernels.blocks(task.rows, task.weight->bits).blocks;
          kernels.pack(task);
          task.packed += kernels.packed_floats(task.rows, task.in);
        }
      } else {
        task.last_block = kernels.blocks(task.rows).blocks;
        kernels.pack(task);
      }
    });
  }

 private:
  ExpertScratch& scratch() const { return state_->experts; }
  const CommonKernels& kernels() const { return *state_->kernels; }
  int place_of(std::int64_t row, int choice, int of_row) const {
    return scratch().places[static_cast<std::size_t>(row * of_row + choice)];
  }

  static View<float, 2> view_of(PageBuffer<float>& buffer, std::int64_t rows, std::int64_t width) {
    State::grow(buffer, static_cast<std::size_t>(rows * width));
    return {buffer.data(), rows, width};
  }

  /// Calls use(row) for every row, each of which moves `width` floats.
  template <class Use>
  void each_row(std::int64_t rows, std::int64_t width, const Use& use) {
    const double nanoseconds = 8.0 * static_cast<double>(rows * width) / bytes_per_ns;
    run(static_cast<int>(rows), nanoseconds, [&](std::uint32_t r, int) { use(std::int64_t{r}); });
  }

  /// Fills choices of the mixture's scratch.
  template <class Matrix, class Router>
  void route(const Mixture<Matrix, Router>& mixture, View<const float, 2> normed) {
    const Routing& routing = mixture.routing;
    const std::int64_t rows = normed.extent(0);
    const View<float, 2> logits = view_of(scratch().logits, rows, routing.experts);
    multiply_small(held_of(mixture.router), mixture.router_bias, normed, logits);
    const auto of_row = static_cast<std::size_t>(mixture.experts_of_row());
    scratch().choices.resize(static_cast<std::size_t>(rows) * of_row);
    const std::span<Choice> choices(scratch().choices);
    each_row(rows, std::int64_t{8} * routing.experts, [&](std::int64_t r) {
      const auto own = choices.subspan(static_cast<std::size_t>(r) * of_row, of_row);
      choose_experts(routing, {logits.row(r), static_cast<std::size_t>(routing.experts)},
                     own.first(static_cast<std::size_t>(routing.chosen)));
      if (mixture.has_shared()) own.back() = {routing.experts, 1};
    });
    if (mixture.shared_gate == nullptr) return;
    multiply_small(held_of(*mixture.shared_gate), nullptr, normed, {logits.data, rows, 1});
    for (std::int64_t r = 0; r < rows; ++r)
      choices[(static_cast<std::size_t>(r) + 1) * of_row - 1].weight = slm::detail::rounded_sigmoid(logits.data[r]);
  }

  /// out [rows, weight.out] = x . weight^T + bias
  template <class Router>
  void multiply_small(const Router& weight, const float* bias, View<const float, 2> x, View<float, 2> out) {
    const float* const packed = pack_rows(weight, x, nullptr);
    const int rows = static_cast<int>(x.extent(0)), width = static_cast<int>(weight.out), slice = 2 * slice_rows(width);
    run_matmul(weight, rows, ceil_div(width, slice), [=, this, &weight](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, width - first);
      Products::multiply(weight, first, count, packed, rows, out.data + first, out.stride(0), thread);
      for (int r = 0; bias != nullptr && r < rows; ++r) {
        for (int i = first; i < first + count; ++i) out.row(r)[i] += bias[i];
      }
    });
  }

  /// The inner activations of all groups from the gathered inputs. same_row: all groups have the same single row.
  template <class Matrix, class Router, class Shares>
  void run_gates(const Mixture<Matrix, Router>& mixture, View<const float, 2> gathered, bool same_row,
                 const Shares& shares) {
    const auto weight_of = [&](const ExpertGroup& group) -> const auto& {
      return held_of(mixture.experts[static_cast<std::size_t>(group.expert)].gate_up);
    };
    const int parts = mixture.gated ? 2 : 1;
    std::int64_t inner = 0;
    for (ExpertGroup& group : scratch().groups) {
      group.inner = inner;
      inner += group.rows * weight_of(group).out / parts;
    }
    State::grow(scratch().inner, static_cast<std::size_t>(inner));
    pack_groups(weight_of, same_row, [&](const ExpertGroup& group) { return gathered.row(group.first); });
    const auto task = [&](const ExpertGroup& group, int first, int count, const Thread& thread) {
      const Expert<Matrix>& expert = mixture.experts[static_cast<std::size_t>(group.expert)];
      const std::int64_t ffn = weight_of(group).out / parts;  // of this rank
      const float* const packed = scratch().packed.data() + group.packed;
      float* out = scratch().inner.data() + group.inner + first;
      float* gate = thread.tile;
      Products::multiply(weight_of(group), first, count, packed, group.rows, gate, count, thread);
      if (!mixture.gated) {
        for (int r = 0; r < group.rows; ++r, gate += count, out += ffn)
          kernels().activate(mixture.activation, gate, nullptr, nullptr, count, out);
        return;
      }
      float* up = gate + std::int64_t{group.rows} * count;
      Products::multiply(weight_of(group), ffn + first, count, packed, group.rows, up, count, thread);
      for (int r = 0; r < group.rows; ++r, gate += count, up += count, out += ffn) {
        if (expert.gate_up_bias != nullptr) {
          for (int i = 0; i < count; ++i) gate[i] += expert.gate_up_bias[shares.row_of(expert.gate_up, first + i)];
          for (int i = 0; i < count; ++i) up[i] += expert.gate_up_bias[shares.row_of(expert.gate_up, ffn + first + i)];
        }
        limit_gates(mixture.routing.settings, gate, up, count);
        kernels().activate(mixture.activation, gate, up, nullptr, count, out);
      }
    };
    run_groups(weight_of, parts, most_slice, task);
    if constexpr (!std::is_same_v<Shares, WholeExperts>) {
      const int shared = mixture.has_shared() ? scratch().groups.back().rows : 0;
      const int routed = static_cast<int>(scratch().places.size()) - shared;
      const Expert<Matrix>&one = mixture.experts.front(), &last = mixture.experts.back();
      const std::int64_t own = held_of(one.gate_up).out / parts, all = routed * one.ffn();
      State::grow(scratch().whole, static_cast<std::size_t>(all + shared * last.ffn()));
      float *const from = scratch().inner.data(), *const to = scratch().whole.data();
      const auto gather = [&](const Matrix& weight, View<const float, 2> mine, View<float, 2> whole) {
        shares.gather(weight, mixture.gated ? 1 : weight.cut.parts, mine, whole);
      };
      gather(one.gate_up, {from, routed, own}, {to, routed, one.ffn()});
      if (shared != 0) {
        const std::int64_t of_shared = held_of(last.gate_up).out / parts;
        gather(last.gate_up, {from + routed * own, shared, of_shared}, {to + all, shared, last.ffn()});
      }
      std::swap(scratch().inner, scratch().whole);
      inner = 0;
      for (ExpertGroup& group : scratch().groups) {
        group.inner = inner;
        inner += group.rows * mixture.experts[static_cast<std::size_t>(group.expert)].ffn();
      }
    }
  }

  /// results [places, hidden] of all groups from their inner activations.
  template <class Matrix, class Router, class Shares>
  void run_downs(const Mixture<Matrix, Router>& mixture, View<float, 2> all, const Shares& shares) {
    const auto weight_of = [&](const ExpertGroup& group) -> const auto& {
      return held_of(mixture.experts[static_cast<std::size_t>(group.expert)].down);
    };
    pack_groups(weight_of, false, [&](const ExpertGroup& group) { return scratch().inner.data() + group.inner; });
    View<float, 2> results = all;
    if constexpr (!std::is_same_v<Shares, WholeExperts>)
      results = view_of(scratch().whole, all.extent(0), held_of(mixture.experts.front().down).out);
    run_groups(weight_of, 1, 2 * most_slice, [&](const ExpertGroup& group, int first, int count, const Thread& thread) {
      const Expert<Matrix>& expert = mixture.experts[static_cast<std::size_t>(group.expert)];
      float* out = results.row(group.first) + first;
      Products::multiply(weight_of(group), first, count, scratch().packed.data() + group.packed, group.rows, out,
                         results.stride(0), thread);
      for (int r = 0; expert.down_bias != nullptr && r < group.rows; ++r, out += results.stride(0)) {
        for (int i = 0; i < count; ++i) out[i] += expert.down_bias[shares.row_of(expert.down, first + i)];
      }
    });
    if constexpr (!std::is_same_v<Shares, WholeExperts>) {
      const Matrix& down = mixture.experts.front().down;
      shares.gather(down, down.cut.parts, results, all);
    }
  }

  /// Packs the rows of each group, rows_of(group) [rows, in], for the kernels of its weight. same_row: they are the
  /// same single row, which is packed once where the weights allow it.
  template <class WeightOf, class RowsOf>
  void pack_groups(const WeightOf& weight_of, bool same_row, const RowsOf& rows_of) {
    std::int64_t floats = 0, moved = 0;
    for (ExpertGroup& group : scratch().groups) {
      const ExpertGroup& first = scratch().groups.front();
      group.packed = floats;
      if (weight_of(group).out == 0) continue;  // of a rank without rows
      if (&group != &first && same_row && weight_of(first).out != 0 &&
          packs_alike(weight_of(first), weight_of(group))) {
        group.packed = first.packed;
        continue;
      }
      floats += packed_floats(weight_of(group), group.rows);
      moved += group.rows * weight_of(group).in;
    }
    State::grow(scratch().packed, static_cast<std::size_t>(floats));
    run(static_cast<int>(scratch().groups.size()), 8.0 * static_cast<double>(moved) / bytes_per_ns,
        [&](std::uint32_t index, int) {
          const ExpertGroup& group = scratch().groups[index];
          const ExpertGroup& first = scratch().groups.front();
          if (index > 0 && group.packed == first.packed && weight_of(first).out != 0) return;
          const auto& weight = weight_of(group);
          if (weight.out == 0) return;
          pack_to(weight, {rows_of(group), group.rows, weight.in}, scratch().packed.data() + group.packed);
        });
  }

  /// Calls task(group, first, count, thread) for slices of the outputs of every group's weight, whose rows are `parts`
  /// parts of outputs.
  template <class WeightOf, class Task>
  void run_groups(const WeightOf& weight_of, int parts, int slice, const Task& task) {
    MatmulTasks tasks{};
    int count = 0;
    const int rows = scratch().most_rows();
    for (ExpertGroup& group : scratch().groups) {
      const auto& weight = weight_of(group);
      group.first_task = count;
      if (weight.out == 0) continue;  // of a rank without rows
      count += ceil_div(static_cast<int>(weight.out) / parts, slice);
      if (tasks.in == 0 || matmul_scratch(weight.in) > matmul_scratch(tasks.in)) tasks.in = weight.in;
      tasks.elements += static_cast<double>(weight.out * weight.in) * group.rows / rows;
      tasks.bytes += static_cast<double>(weight.bytes());
    }
    if (count == 0) return;
    const auto one = [&](int index, const Thread& thread) {
      const ExpertGroup& group = scratch().group_of(index);
      const auto& weight = weight_of(group);
      const int first = (index - group.first_task) * slice;
      MatmulTasks around{};
      visit_held(weight, [&](const auto& held) { set_around(around, held); });
      if (around.begin != nullptr) around.begin();
      task(group, first, std::min(slice, static_cast<int>(weight.out) / parts - first), thread);
      if (around.end != nullptr) around.end();
    };
    tasks.task = &one;
    tasks.call = [](const void* to, int index, const Thread& thread) {
      (*static_cast<const decltype(one)*>(to))(index, thread);
    };
    share_matmul(tasks, rows, count);
  }

  /// Whether rows that are packed for one weight are packed for the other too.
  template <class Weight>
  static bool packs_alike(const Weight& a, const Weight& b) {
    return visit_held(a, [&](const auto& one) {
      return visit_held(b, [&](const auto& other) {
        if constexpr (!std::is_same_v<decltype(one), decltype(other)>) {
          return false;
        } else if constexpr (std::is_same_v<decltype(one), const CodeMatrix&>) {
          return one.in == other.in && one.packings.size() == 1 && other.packings.size() == 1 &&
                 one.segments.front().tiles.packs_like(other.segments.front().tiles);
        } else {
          return one.in == other.in;
        }
      });
    });
  }
};

}}}
