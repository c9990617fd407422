// What the copies of a Gpu share: the device, its stream, and memory for what lies between two kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/landing.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/chooser.hpp"
#include "slm/backend/gpu/steps/step_graphs.hpp"
#include "slm/core/error.hpp"

namespace slm::backend {

struct GpuOptions {
  int device = 0;             // index into R::devices()
  int most_vector_rows = 16;  // products of more rows take the form for many; a row's bits are the same in both
  int split_blocks = 0;       // attention is split along the sequence below so many blocks; 0: from the device
};

}  // namespace slm::backend

namespace slm::gpu {

template <Runtime R, int MaxRows>
struct DeviceState {
  template <class T>
  using Buffer = DeviceBuffer<T, R>;
  static constexpr int most_tickets = 1 << 16;
  static constexpr int most_recorded_rows = 16;
  static constexpr std::int64_t most_partial = std::int64_t{1} << 26;  // numbers of attention's chunks

  DeviceState(R device, const backend::GpuOptions& chosen_options)
      : options(chosen_options),
        runtime(std::move(device)),
        stream(runtime.make_stream()),
        step(runtime, SetNumbers::most),
        tickets(runtime, most_tickets),
        statistics(runtime, MaxRows),
        landing(runtime),
        chooser(runtime, MaxRows) {
    runtime.fill(tickets.data(), 0, tickets.size() * sizeof(int), stream);
  }

  backend::GpuOptions options;
  R runtime;
  typename R::Stream stream;
  std::recursive_mutex mutex;  // step() holds it while it calls operations
  Buffer<int> step;            // the position of row 0, then the tokens of the rows
  Buffer<int> tickets;         // zero between launches
  Buffer<RowStatistics> statistics;
  Landing<R> landing;
  Chooser<R> chooser;
  Buffer<float> scratch;  // a product that is shaped afterwards
  Buffer<float> partial;  // attention's chunks
  Buffer<float> logits;
  int position = -1;     // what step[0] is
  int generation = 0;    // launches recorded before scratch memory moved name what is gone
  int chunks = 0;        // inside step(): attention's chunks of the step's shape
  bool goes_on = false;  // inside choosing_steps(): another step follows this one

  void set_step(std::span<const Token> tokens, int at) {
    SetNumbers::Args numbers{.to = step.memory(), .count = 1 + static_cast<int>(tokens.size()), .number = {at}};
    std::copy(tokens.begin(), tokens.end(), numbers.number + 1);
    runtime.template launch<SetNumbers>(numbers, stream);
    position = at;
  }
  void set_position(int at) {
    if (position != at) set_step({}, at);
  }

  static void check(const Heads& heads) {
    if (heads.dim <= 256) return;
    throw Error("gpu.head-dim", text("heads of ", heads.dim, " dimensions, at most 256 are supported on a GPU"),
                "Run this model on the backend cpu");
  }

  static std::int64_t partial_size(int rows, Heads heads, int chunks) {
    return std::int64_t{rows} * heads.query * chunks * (heads.dim + 2);
  }

  /// Elements that no recorded step of a model needs more of.
  struct Sizes {
    std::int64_t scratch, partial, logits;
    std::size_t bytes() const { return static_cast<std::size_t>(scratch + partial + logits) * sizeof(float); }
  };
  static Sizes reserved(Heads heads, std::int64_t product, int vocab, int context) {
    const std::int64_t split = partial_size(most_recorded_rows, heads, StepShape::chunks_of(context));
    return {most_recorded_rows * product, std::min(split, most_partial), std::int64_t{most_recorded_rows} * vocab};
  }
  void reserve(Heads heads, std::int64_t product, int vocab, int context) {
    check(heads);
    const Sizes sizes = reserved(heads, product, vocab, context);
    grow(scratch, sizes.scratch);
    grow(partial, sizes.partial);
    grow(logits, sizes.logits);
  }

  /// Scratch of at least `count` elements; it grows while a model meets its largest shapes for the first time.
  float* grow(Buffer<float>& buffer, std::int64_t count) {
    if (buffer.size() < static_cast<std::size_t>(count)) {
      runtime.synchronize(stream);
      buffer = {};
      buffer = Buffer<float>(runtime, static_cast<std::size_t>(count));
      ++generation;
    }
    return buffer.data();
  }
};

}  // namespace slm::gpu
