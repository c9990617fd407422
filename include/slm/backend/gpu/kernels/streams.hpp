// Kernels of residual streams, and of an MLP that drops gates. See MixesStreams.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// x *= rms(like) / max(rms(x), sqrt(1e-5))
struct MatchRows {
  struct Args {
    Memory<float> x;           // [rows, width]
    Memory<const float> like;  // [rows, width]
    int width, rows;
  };
  struct Shared {
    BlockSums x, like;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = block_threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    const NormArgs norm{.weight = {}, .bias = {}, .epsilon = 0, .kind = NormKind::rms};
    row_statistics(lane, Rows{args.x, args.width, args.rows}, norm, row, 1, shared.x);
    row_statistics(lane, Rows{args.like, args.width, args.rows}, norm, row, 1, shared.like);
    // A scale is 1 / rms.
    const float factor = fminf(shared.x.row[0].scale, 316.227766f) / shared.like.row[0].scale;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      args.x[std::int64_t{row} * args.width + k] *= factor;
    }
  }
};

/// Arguments of kernels over all streams: the rows of the first stream, then those of the second one, and so on.
struct StreamsArgs {
  Memory<float> streams;        // [count, rows, width]
  Memory<const float> weights;  // [rows, count * count] or [rows, count]
  Memory<const float> x;        // [rows, width]; only of CorrectStreams
  int width, rows, count;

  SLM_DEVICE std::int64_t place(int stream, int row) const { return (std::int64_t{stream} * rows + row) * width; }
};

/// stream j += sum over i of weights[j * count + i] * stream i
struct MixStreams {
  using Args = StreamsArgs;
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int row = lane.block_x(), count = args.count;
    const std::int64_t weights = std::int64_t{row} * count * count;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      float before[most_streams];
      SLM_UNROLL
      for (int i = 0; i < most_streams; ++i) before[i] = i < count ? args.streams[args.place(i, row) + k] : 0.0f;
      for (int j = 0; j < count; ++j) {
        float& stream = args.streams[args.place(j, row) + k];
        float sum = stream;
        SLM_UNROLL
        for (int i = 0; i < most_streams; ++i) {
          if (i < count) sum = fmaf(args.weights[weights + j * count + i], before[i], sum);
        }
        stream = sum;
      }
    }
  }
};

/// stream j += (1 + weights[j]) * (x - stream 0)
struct CorrectStreams {
  using Args = StreamsArgs;
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int row = lane.block_x();
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      const float change = args.x[args.place(0, row) + k] - args.streams[args.place(0, row) + k];
      for (int j = 0; j < args.count; ++j) {
        float& stream = args.streams[args.place(j, row) + k];
        stream = fmaf(1.0f + args.weights[std::int64_t{row} * args.count + j], change, stream);
      }
    }
  }
};

/// out = activation(max(gate - mean - cutoff * deviation, 0)) * up, with mean and deviation of the row's gates.
struct GateSomeRows {
  struct Args {
    Memory<const float> gate_up;  // [rows, 2 * width]
    Memory<float> out;            // [rows, width]
    int width, rows;
    Activation activation;
    float cutoff;
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = block_threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    const NormArgs norm{.weight = {}, .bias = {}, .epsilon = 0, .kind = NormKind::layer};
    // The gates are every second row of half the width.
    row_statistics(lane, Rows{args.gate_up, args.width, 2 * args.rows}, norm, 2 * row, 1, shared.sums);
    const RowStatistics of = shared.sums.row[0];  // the scale is 1 / deviation
    const float least = of.mean + args.cutoff / of.scale;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      const std::int64_t gate = std::int64_t{row} * 2 * args.width + k;
      const float above = fmaxf(args.gate_up[gate] - least, 0.0f);
      args.out[std::int64_t{row} * args.width + k] = activate(args.activation, above) * args.gate_up[gate + args.width];
    }
  }
};

}}}
