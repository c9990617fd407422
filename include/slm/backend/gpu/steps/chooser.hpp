// Chooser: sampling on the device, and its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/step_shape.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

template <Runtime R>
class Chooser {
 public:
  Chooser(R& runtime, int most_rows)
      : peaks_(runtime, static_cast<std::size_t>(most_rows)),
        cuts_(runtime, static_cast<std::size_t>(most_rows)),
        partial_(runtime, static_cast<std::size_t>(most_rows) * Peak::most_blocks) {}

  /// Chooses one token per row of logits. hardest: the most complex of their draws. tokens.size is the number of rows.
  /// device.launch<K>(args) launches a kernel.
  template <class Device>
  void choose(Device& device, Memory<const float> logits, const StepOutputs& outputs, Choice hardest,
              Memory<int> tokens, Memory<int> tickets) {
    const int rows = static_cast<int>(tokens.size), width = static_cast<int>(logits.size / rows);
    const ChoiceArgs args{.logits = logits,
                          .outputs = outputs,
                          .peaks = peaks_.memory(),
                          .cuts = cuts_.memory(),
                          .tokens = tokens,
                          .partial = partial_.memory(),
                          .tickets = tickets,
                          .width = width,
                          .rows = rows};
    device.template launch<Peak>(args);
    if (hardest == Choice::cut_race) {
      device.template launch<Cut>({logits, outputs, peaks_.memory(), cuts_.memory(), width, rows});
    }
    if (hardest >= Choice::race) device.template launch<Race>(args);
  }

 private:
  template <class T>
  using Buffer = DeviceBuffer<T, R>;

  Buffer<int> peaks_;
  Buffer<std::uint64_t> cuts_;
  Buffer<Ranked> partial_;  // [rows, blocks]
};

}}}
