// DeviceState: state shared by copies of a Gpu: device, stream, and memory between kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/staged_rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/landing.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/chooser.hpp"
#include "slm/backend/gpu/steps/expert_step.hpp"
#include "slm/backend/gpu/steps/mask_upload.hpp"
#include "slm/backend/gpu/steps/plan_upload.hpp"
#include "slm/backend/gpu/steps/step_program.hpp"
#include "slm/backend/gpu/steps/step_shape.hpp"
#include "slm/backend/gpu/weights/tile_matrix.hpp"
#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

struct GpuOptions {
  int device = 0;             // index into R::devices()
  int most_vector_rows = 16;  // products of more rows use the form Tiles; a row's bits are equal in both
  int split_blocks = 0;       // attention is split along the sequence below this number of blocks; 0: from the device
  bool dependent_launches = true;  // use dependent launches if supported, see runtime/launch.hpp
  bool persistent_steps = false;   // recorded steps of few rows use persistent kernels, see steps/step_program.hpp
};

}}}

namespace slm { inline namespace v0_1 { namespace gpu {

template <Runtime R, int MaxRows, int MostRecordedRows>
struct DeviceState {
  using Device = R;
  using Router = TileMatrix<Fp32, R>;
  template <class T>
  using Buffer = DeviceBuffer<T, R>;
  static constexpr int most_tickets = 1 << 16;
  static constexpr int most_recorded_rows = MostRecordedRows;
  static constexpr std::int64_t most_partial = std::int64_t{1} << 26;  // elements of attention's partial results

  DeviceState(R device, const backend::GpuOptions& chosen_options)
      : options(chosen_options),
        runtime(std::move(device)),
        stream(runtime.make_stream()),
        upload(runtime),
        masks(runtime),
        tickets(runtime, most_tickets),
        landing(runtime),
        chooser(runtime, MaxRows) {
    runtime.fill(tickets.data(), 0, tickets.size() * sizeof(int), stream);
    grow(chosen, MaxRows);
  }

  backend::GpuOptions options;
  R runtime;
  typename R::Stream stream;
  std::mutex mutex;                    // held by a step while it lives
  std::function<void()> before_waits;  // of that step; called before a wait that could otherwise block forever
  PlanUpload<R> upload;
  MaskUpload<R> masks;
  Buffer<int> tickets;  // zero between launches
  Landing<R> landing;
  Chooser<R> chooser;
  Buffer<int> chosen;            // tokens [steps, outputs]
  Buffer<float> scratch;         // a product that is finished by a later kernel
  Buffer<std::uint32_t> staged;  // inputs of a product, see StageRows
  Buffer<Changes> changes;       // LowRankRows of a product
  Buffer<float> low_rank;
  Buffer<float> partial;          // attention's chunks
  Buffer<std::uint32_t> mixture;  // ExpertMemory
  Buffer<float> logits;
  Buffer<float> step_scratch[scratch_buffers];
  int generation = 0;                 // changes when memory moves; older records are then invalid
  StepProgram<R>* program = nullptr;  // collects launches if set

  template <class K>
  void launch(const typename K::Args& args) {
    if (program != nullptr) return program->template add<K>(runtime, args);
    runtime.template launch<K>(args, stream);
  }

  static void check(const Heads& heads) {
    if (heads.dim <= most_head_dim) return;
    throw Error("gpu.head-dim",
                text("heads of ", heads.dim, " dimensions, at most ", most_head_dim, " are supported on a GPU"),
                "Run this model on the backend cpu");
  }

  static std::int64_t partial_size(int rows, Heads heads, int chunks) {
    return std::int64_t{rows} * heads.query * chunks * (heads.dim + 2);
  }

  /// Buffer sizes that suffice for every recorded step of a model.
  struct Sizes {
    std::int64_t product, partial, logits, staged, mixture;  // in elements of four bytes
    std::size_t bytes() const {
      return static_cast<std::size_t>((1 + scratch_buffers) * product + partial + logits + staged + mixture) *
             sizeof(float);
    }
  };
  static Sizes reserved(Heads heads, std::int64_t product, int vocab, int context, const MixtureWidths& mixture) {
    const std::int64_t split = partial_size(most_recorded_rows, heads, StepShape::chunks_of(context));
    // fp32 needs the most. Inputs are padded to whole blocks of codes, at most 128.
    const int steps = static_cast<int>((product + 127) / 128) * (128 / slice_depth);
    return {most_recorded_rows * product, std::min(split, most_partial), std::int64_t{most_recorded_rows} * vocab,
            StagedSlice<Fp32>::words_of(most_recorded_rows, steps),
            mixture.experts == 0 ? 0 : ExpertMemory::words(mixture, most_recorded_rows)};
  }
  void reserve(Heads heads, std::int64_t product, int vocab, int context, const MixtureWidths& widths) {
    check(heads);
    const Sizes sizes = reserved(heads, product, vocab, context, widths);
    grow(scratch, sizes.product);
    grow(partial, sizes.partial);
    grow(logits, sizes.logits);
    grow(staged, sizes.staged);
    grow(mixture, sizes.mixture);
    for (int index = 0; index < scratch_buffers; ++index) step_rows(index, sizes.product);
  }

  /// Allocates for steps of any number of rows, when the first step with an adapter begins.
  void reserve_adapters() {
    grow(changes, MaxRows);
    grow(low_rank, std::int64_t{MaxRows} * most_ranks);
  }

  ExpertMemory expert_memory(const MixtureWidths& widths, int rows) {
    ExpertMemory parts = ExpertMemory::in(grow(mixture, ExpertMemory::words(widths, rows)), widths, rows);
    parts.choose_form(widths, rows, options.most_vector_rows);
    return parts;
  }

  /// New buffers are filled with NaN: padding rows read them, and a leak into other rows would be visible.
  float* step_rows(int index, std::int64_t count) {
    const int before = generation;
    float* const data = grow(step_scratch[index], count);
    if (generation != before) runtime.fill(data, 0xff, static_cast<std::size_t>(count) * sizeof(float), stream);
    return data;
  }

  /// Returns at least `count` elements; the buffer grows when a model meets its largest shapes for the first time.
  template <class T>
  T* grow(Buffer<T>& buffer, std::int64_t count) {
    if (buffer.size() < static_cast<std::size_t>(count)) {
      if (before_waits) before_waits();
      runtime.synchronize(stream);
      buffer = {};
      buffer = Buffer<T>(runtime, static_cast<std::size_t>(count));
      ++generation;
    }
    return buffer.data();
  }
};

}}}
