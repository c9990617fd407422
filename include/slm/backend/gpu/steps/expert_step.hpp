// A mixture of experts as launches. The choice of a step's experts stays on the device: kernels find the groups of rows
// and their experts in memory, and grids depend on the step's shape only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "slm/backend/expert_shares.hpp"
#include "slm/backend/gpu/kernels/expert_product.hpp"
#include "slm/backend/gpu/kernels/experts.hpp"
#include "slm/backend/gpu/kernels/shares.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/steps/step_arguments.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Memory of the kernels of a mixture between launches.
struct ExpertMemory {
  View<float, 2> logits;       // [rows, experts]
  View<float, 2> shared_gate;  // [rows, 1]
  Memory<float> normed;        // [rows, hidden]
  Memory<float> weights;       // [places]
  Memory<float> gate_up;       // [places, stride]
  Memory<float> results;       // [places, hidden]
  Memory<int> chosen, order;   // [places]
  Memory<ExpertRows> groups;
  int stride = 0;
  int group_rows = vector_rows;

  /// Groups that suffice for any choice: each expert has at most one incomplete group.
  static std::int64_t groups_of(const MixtureWidths& widths, int rows, int group_rows) {
    const std::int64_t places = std::int64_t{rows} * widths.chosen;
    return std::min(places, widths.experts + places / group_rows) +
           (widths.shared ? (rows + group_rows - 1) / group_rows : 0);
  }

  /// Makes groups those of tiles if rows are many, also per expert.
  void choose_form(const MixtureWidths& widths, int rows, int most_vector_rows) {
    if (rows <= most_vector_rows || std::int64_t{rows} * widths.chosen <= vector_rows * widths.experts) return;
    group_rows = Compute<Bf16>::tile_rows;
    groups.size = groups_of(widths, rows, group_rows);
  }

  /// Calls take(part, count) for each part.
  template <class Take>
  void each(const MixtureWidths& widths, int rows, const Take& take) {
    const std::int64_t places = std::int64_t{rows} * widths.of_row();
    stride = (widths.inner + 3) / 4 * 4;
    take(logits.data, std::int64_t{rows} * widths.experts);
    take(shared_gate.data, rows);
    take(normed.data, normed.size = std::int64_t{rows} * widths.hidden);
    take(weights.data, weights.size = places);
    take(gate_up.data, gate_up.size = places * stride);
    take(results.data, results.size = places * widths.hidden);
    take(chosen.data, chosen.size = places);
    take(order.data, order.size = places);
    take(groups.data, groups.size = groups_of(widths, rows, group_rows));
    logits = {logits.data, rows, widths.experts};
    shared_gate = {shared_gate.data, rows, 1};
  }

  static std::int64_t words(const MixtureWidths& widths, int rows) {
    std::int64_t all = 0;
    ExpertMemory{}.each(widths, rows, [&]<class T>(T*, std::int64_t count) { all += words_of<T>(count); });
    return all;
  }
  static ExpertMemory in(std::uint32_t* words, const MixtureWidths& widths, int rows) {
    ExpertMemory parts;
    parts.each(widths, rows, [&]<class T>(T*& data, std::int64_t count) {
      data = reinterpret_cast<T*>(words);
      words += words_of<T>(count);
    });
    return parts;
  }

 private:
  template <class T>
  static std::int64_t words_of(std::int64_t count) {
    return (count * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 4;  // each part is aligned to 16 bytes
  }
};

/// Multiplies the rows of each group by a matrix of its expert.
template <class State, class Matrix, class Router, class Matrices, class MatrixOf>
void multiply_experts(State& state, const Mixture<Matrix, Router>& mixture, const Matrices& matrices,
                      MatrixOf matrix_of, ExpertProductArgs args) {
  args.experts = matrices.memory();
  args.layout = 0;
  for (const std::size_t expert : matrices.first_of_layouts()) {
    const auto& first = held_of(matrix_of(mixture.experts[expert]));
    args.weight = first.tiles();
    args.weight.words = {};
    first.visit([&]<class Format>(Format) {
      if (args.group_rows == vector_rows) return state.template launch<ProductExpertVectors<Format>>(args);
      using Slice = StagedSlice<Format>;
      const std::int64_t words = args.groups.size * Slice::words_of(args.group_rows, args.weight.steps);
      args.staged = {state.grow(state.staged, words), words};
      state.template launch<StageExperts<Format>>(args);
      state.template launch<ProductExpertTiles<Format>>(args);
    });
    ++args.layout;
  }
}

/// Multiplies the rows of each group likewise, by this rank's rows of the matrices, and gathers the others' results.
template <class State, class Matrix, class Router, class Matrices, class MatrixOf, class Shares>
void multiply_shared(State& state, const Mixture<Matrix, Router>& mixture, const Matrices& matrices, MatrixOf matrix_of,
                     ExpertProductArgs args, int places, const Shares& shares) {
  if constexpr (std::is_same_v<Shares, WholeExperts>) {
    multiply_experts(state, mixture, matrices, matrix_of, args);
  } else {
    const ExpertCuts cuts{.cut = matrix_of(mixture.experts.front()).cut,
                          .shared = matrix_of(mixture.experts.back()).cut,
                          .of_row = mixture.experts_of_row(),
                          .chosen_count = mixture.routing.chosen};
    shares.shares.gather_experts(cuts, {args.out.data, places, args.out_stride}, [&](const View<float, 2>& mine) {
      args.out = memory(mine);
      args.out_stride = static_cast<int>(mine.extent(1));
      multiply_experts(state, mixture, matrices, matrix_of, args);
    });
  }
}

/// to += factor * mixture(norm(x)), after the products of the router and the shared expert's gate. shares: see
/// SharesExperts.
template <class State, class Matrix, class Router, class Shares>
void run_experts(State& state, const Mixture<Matrix, Router>& mixture, const ExpertMemory& parts, const Rows& x,
                 const NormArgs& norm, Memory<const StepRow> rows, Memory<float> to, float factor,
                 const Shares& shares) {
  const Routing& routing = mixture.routing;
  const int of_row = mixture.experts_of_row(), places = x.count * of_row;
  state.template launch<RouteRows>({.x = x,
                                    .norm = norm,
                                    .rows = rows,
                                    .logits = memory(View<const float, 2>(parts.logits)),
                                    .shared_gate = mixture.shared_gate == nullptr
                                                       ? Memory<const float>{}
                                                       : Memory<const float>(memory(parts.shared_gate)),
                                    .choice_bias = memory(routing.choice_bias, routing.experts),
                                    .factors = memory(routing.factors, routing.experts),
                                    .normed = parts.normed,
                                    .weights = parts.weights,
                                    .chosen = parts.chosen,
                                    .order = parts.order,
                                    .groups = parts.groups,
                                    .ticket = state.tickets.memory(),
                                    .scores = routing.scores,
                                    .settings = routing.settings,
                                    .experts = routing.experts,
                                    .chosen_count = routing.chosen,
                                    .of_row = of_row,
                                    .group_rows = parts.group_rows});
  const int hidden = x.width, parts_of_up = mixture.gated ? 2 : 1;
  ExpertProductArgs args{.weight = {},
                         .layout = 0,
                         .experts = {},
                         .groups = parts.groups,
                         .order = parts.order,
                         .group_rows = parts.group_rows,
                         .x = parts.normed,
                         .x_stride = hidden,
                         .places_per_row = of_row,
                         .staged = {},
                         .out = parts.gate_up,
                         .out_stride = parts.stride};
  const auto& table = held_of(*mixture.table);
  multiply_shared(
      state, mixture, table.gate_up, [](const auto& e) -> const Matrix& { return e.gate_up; }, args, places, shares);
  state.template launch<ActivateExperts>(
      {.gate_up = parts.gate_up,
       .chosen = parts.chosen,
       .places = places,
       .of_row = of_row,
       .chosen_count = routing.chosen,
       .stride = parts.stride,
       .width = static_cast<int>(mixture.experts.front().gate_up.out) / parts_of_up,
       .shared_width = static_cast<int>(mixture.experts.back().gate_up.out) / parts_of_up,
       .gated = mixture.gated,
       .activation = mixture.activation,
       .limit = routing.settings.gate_limit,
       .alpha = routing.settings.gate_alpha});
  args.x = parts.gate_up;
  args.x_stride = parts.stride;
  args.places_per_row = 1;
  args.out = parts.results;
  args.out_stride = hidden;
  multiply_shared(
      state, mixture, table.down, [](const auto& e) -> const Matrix& { return e.down; }, args, places, shares);
  state.template launch<AddExperts>({.results = parts.results,
                                     .weights = parts.weights,
                                     .chosen = parts.chosen,
                                     .sums = parts.normed,
                                     .x = to,
                                     .count = x.count,
                                     .of_row = of_row,
                                     .width = hidden,
                                     .norm = norm_args(mixture.output_norm, hidden),
                                     .factor = factor});
}

}}}
