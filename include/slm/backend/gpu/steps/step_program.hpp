// StepProgram: a step as programs of persistent kernels, see runtime/persistent.hpp: one launch instead of one per
// operation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "slm/backend/gpu/kernels/any_epilogue.hpp"
#include "slm/backend/gpu/kernels/attend.hpp"
#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/persistent.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The kernels of a step of few rows without adapters, over fp16 pages, for one weight format. Kernels without weights
/// come first, so that each has the same index in all lists. Not for fp32, whose product alone fills the registers of
/// RDNA3.
template <class Format>
struct PersistentStep : Persistent<Attend<64, 16, half_t>, Attend<128, 16, half_t>, ShapeQkv, GateRows, NormalizeRows,
                                   SelectRows, Peak, Cut, Race, Embed<Format>, ProductVectors<Format, AnyEpilogue>> {};

/// Maps a launched kernel to its persistent version: kernel, list and arguments.
template <class K>
struct Played {
  using Kernel = K;
  using Format = void;  // weight format; void: none
  static const typename K::Args& args(const typename K::Args& launched) { return launched; }
};
template <class Weights>
struct Played<Embed<Weights>> {
  using Kernel = Embed<Weights>;
  using Format = Weights;
  static const typename Kernel::Args& args(const typename Kernel::Args& launched) { return launched; }
};
template <class Weights, class Epilogue>
struct Played<ProductVectors<Weights, Epilogue>> {
  using Kernel = ProductVectors<Weights, AnyEpilogue>;
  using Format = Weights;
  static typename Kernel::Args args(const ProductArgs<Weights, Epilogue>& launched) {
    return {.weight = launched.weight,
            .panels = launched.panels,
            .x = launched.x,
            .norm = launched.norm,
            .staged = {},
            .low_rank = launched.low_rank,
            .epilogue = AnyEpilogue::args_of<Epilogue>(launched.epilogue)};
  }
};

/// Collects launches, then runs them any number of times. Adjacent operations become one launch while their weights
/// have one format.
template <Runtime R>
class StepProgram {
 public:
  template <class K>
  void add(const R& runtime, const typename K::Args& launched) {
    using Format = typename Played<K>::Format;
    using Kernel = typename Played<K>::Kernel;
    using Step = PersistentStep<std::conditional_t<std::is_void_v<Format>, Bf16, Format>>;
    constexpr int index = Step::template index_of<Kernel>();
    if constexpr (index < 0 || std::is_same_v<Format, Fp32>) {
      whole_ = false;
    } else {
      if (parts_.empty()) begin_part();
      if constexpr (!std::is_void_v<Format>) {
        if (parts_.back().launch != nullptr && parts_.back().launch != &launch<Step>) begin_part();
        parts_.back().launch = &launch<Step>;
        parts_.back().resident = runtime.template resident_blocks<Step>();
      }
      const typename Kernel::Args args = Played<K>::args(launched);
      const Grid grid = Kernel::grid(args, runtime.info().wave_width);
      const int blocks = grid.x * grid.y * grid.z;
      const std::size_t at = args_.size();
      args_.resize(at + (sizeof args + 15) / 16 * 16);
      std::memcpy(&args_[at], &args, sizeof args);
      operations_.push_back({index, grid.x, grid.y, blocks, static_cast<std::int64_t>(at)});
      ++parts_.back().count;
      parts_.back().useful = std::max(parts_.back().useful, blocks);
    }
  }

  /// Whether all added launches are included and the device can run the program.
  bool complete() const {
    return whole_ && !parts_.empty() &&
           std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.launch && p.resident > 0; });
  }

  /// Copies the program to the device, and waits for the copy.
  void upload(R& runtime, typename R::Stream& stream) {
    const std::size_t before_args = (operations_.size() * sizeof(Operation) + 15) / 16 * 16;
    for (Operation& operation : operations_) operation.args += static_cast<std::int64_t>(before_args);
    std::vector<std::byte> bytes(before_args);
    std::memcpy(bytes.data(), operations_.data(), operations_.size() * sizeof(Operation));
    bytes.insert(bytes.end(), args_.begin(), args_.end());
    program_ = Buffer<std::byte>(runtime, bytes.size());
    arrived_ = Buffer<int>(runtime, 1);
    runtime.copy_in(program_.data(), bytes.data(), bytes.size(), stream);
    runtime.fill(arrived_.data(), 0, sizeof(int), stream);
    runtime.synchronize(stream);
    operations_ = {};
    args_ = {};
  }

  /// Requires upload().
  void play(R& runtime, typename R::Stream& stream) {
    for (const Part& part : parts_) {
      part.launch(runtime, stream,
                  {.program = {program_.data(), static_cast<std::int64_t>(program_.size())},
                   .first = part.first,
                   .count = part.count,
                   .blocks = std::min(part.resident, part.useful),
                   .arrived = arrived_.data()});
    }
  }

 private:
  template <class T>
  using Buffer = DeviceBuffer<T, R>;
  using Launch = void(R&, typename R::Stream&, const PersistentArgs&);

  struct Part {
    int first, count;  // range of operations
    int useful;        // blocks of the widest of them
    Launch* launch;    // null until a format is known
    int resident;      // resident blocks
  };

  template <class Step>
  static void launch(R& runtime, typename R::Stream& stream, const PersistentArgs& args) {
    runtime.template launch<Step>(args, stream);
  }

  void begin_part() { parts_.push_back({static_cast<int>(operations_.size()), 0, 0, nullptr, 0}); }

  bool whole_ = true;
  std::vector<Part> parts_;
  std::vector<Operation> operations_;
  std::vector<std::byte> args_;
  Buffer<std::byte> program_;
  Buffer<int> arrived_;
};

}}}
