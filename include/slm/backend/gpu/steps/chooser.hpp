// Chooser: tokens chosen on the device, and the memory that this takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/landing.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/core/draw.hpp"

namespace slm::gpu {

/// Which launches a choice is.
enum class Choice { none, greedy, race, cut_race };

inline Choice choice_of(const Draw& draw) {
  return draw.greedy() ? Choice::greedy : draw.cuts() ? Choice::cut_race : Choice::race;
}

template <Runtime R>
class Chooser {
 public:
  Chooser(R& runtime, int most_rows)
      : draw_(runtime, 1),
        peaks_(runtime, static_cast<std::size_t>(most_rows)),
        chosen_(runtime, static_cast<std::size_t>(most_rows)),
        cuts_(runtime, static_cast<std::size_t>(most_rows)),
        partial_(runtime, static_cast<std::size_t>(most_rows) * Peak::most_blocks) {}

  /// How the next tokens are chosen; the first of them goes to place 0.
  void begin(R& runtime, typename R::Stream& stream, const Draw& draw) {
    at_ = 0;
    if (draw == known_) return;
    runtime.template launch<SetDraw>({draw_.memory(), draw}, stream);
    known_ = draw;
  }

  /// One token for each row of logits. Row r is the row first + r of the step whose position and tokens `step` holds;
  /// when `goes_on`, a single token becomes the next step's.
  void choose(R& runtime, typename R::Stream& stream, Memory<const float> logits, int rows, int first, Memory<int> step,
              Memory<int> tickets, bool goes_on) {
    const Choice choice = choice_of(known_);
    const int width = static_cast<int>(logits.size / rows);
    const Memory<int> chosen{chosen_.data() + at_, rows};
    ChoiceArgs args{.logits = logits,
                    .draw = draw_.memory(),
                    .peaks = peaks_.memory(),
                    .cuts = {},
                    .tokens = choice == Choice::greedy ? chosen : peaks_.memory(),
                    .step = step,
                    .partial = partial_.memory(),
                    .tickets = tickets,
                    .width = width,
                    .rows = rows,
                    .first = first,
                    .goes_on = goes_on && choice == Choice::greedy};
    runtime.template launch<Peak>(args, stream);
    at_ += rows;
    if (choice == Choice::greedy) return;
    if (choice == Choice::cut_race) {
      runtime.template launch<Cut>({logits, draw_.memory(), peaks_.memory(), cuts_.memory(), width, rows}, stream);
      args.cuts = cuts_.memory();
    }
    args.tokens = chosen;
    args.goes_on = goes_on;
    runtime.template launch<Race>(args, stream);
  }

  /// What was chosen since begin(); waits for the device.
  void read(Landing<R>& landing, typename R::Stream& stream, std::span<Token> tokens) const {
    landing.read(stream, tokens.data(), chosen_.data(), tokens.size_bytes());
  }

 private:
  template <class T>
  using Buffer = DeviceBuffer<T, R>;

  Buffer<Draw> draw_;
  Buffer<int> peaks_;
  Buffer<int> chosen_;
  Buffer<std::uint64_t> cuts_;
  Buffer<Ranked> partial_;   // [rows, blocks]
  Draw known_{.vocab = -1};  // what draw_ holds
  int at_ = 0;               // place of the next token in chosen_
};

}  // namespace slm::gpu
