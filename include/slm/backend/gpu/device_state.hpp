// What the copies of a Gpu share: the device, its stream, and memory for what lies between two kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "slm/backend/gpu/device_buffer.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/runtime.hpp"
#include "slm/backend/gpu/stage.hpp"

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

  DeviceState(R device, const backend::GpuOptions& chosen_options)
      : options(chosen_options),
        runtime(std::move(device)),
        stream(runtime.make_stream()),
        step(runtime, 1 + SetNumbers::most),
        tickets(runtime, most_tickets),
        statistics(runtime, MaxRows),
        chosen(runtime, MaxRows),
        best(runtime, std::size_t{MaxRows} * ArgMax::blocks),
        best_index(runtime, std::size_t{MaxRows} * ArgMax::blocks) {
    runtime.fill(tickets.data(), 0, tickets.size() * sizeof(int), stream);
  }

  backend::GpuOptions options;
  R runtime;
  typename R::Stream stream;
  std::recursive_mutex mutex;  // step() holds it while it calls operations
  Buffer<int> step;            // the position of row 0, then the tokens of the rows
  Buffer<int> tickets;         // zero between launches
  Buffer<RowStatistics> statistics;
  Buffer<int> chosen;
  Buffer<float> best;
  Buffer<int> best_index;
  Buffer<float> scratch;  // a product that is shaped afterwards
  Buffer<float> partial;  // attention's chunks
  Buffer<float> logits;
  int position = -1;   // what step[0] is
  int generation = 0;  // launches recorded before scratch memory moved name what is gone
  int chunks = 0;      // inside step(): attention's chunks of the step's shape

  /// Scratch of at least `count` elements; it grows while a model meets its largest shapes for the first time.
  float* grow(Buffer<float>& buffer, std::int64_t count) {
    if (buffer.size() < static_cast<std::size_t>(count)) {
      runtime.synchronize(stream);
      buffer = {};
      buffer = Buffer<float>(runtime, static_cast<std::size_t>(count));
      if (&buffer != &logits) ++generation;  // logits are computed outside of recorded launches
    }
    return buffer.data();
  }
};

}  // namespace slm::gpu
