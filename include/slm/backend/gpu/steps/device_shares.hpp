// DeviceShares: combines the ranks' partial results into whole rows, for activations in GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/gpu/kernels/shares.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/plan.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/view.hpp"
#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// A communicator whose devices access each other's memory in stream order, and whose wait() ends if a rank fails.
template <class C, class Stream>
concept StreamCommunicator = ranks::Communicator<C> &&
    requires(const C& ranks, std::span<std::byte> bytes, std::span<const std::byte> share,
             std::span<const std::size_t> sizes, int root, Stream& stream) {
  ranks.broadcast(bytes, root, stream);
  ranks.all_gather(share, sizes, bytes, stream);
  ranks.wait(stream);
};

/// Interface of HostShares. All operations are queued on the device's stream; only bring() and finish(), which end a
/// step, wait. The runtime's own waits would block forever if another rank fails.
template <class State, StreamCommunicator<typename State::Device::Stream> C>
class DeviceShares {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  /// While it lives, memory that grows during a step first waits for the other ranks.
  class Turn {
   public:
    explicit Turn(DeviceShares& shares) : state_(*shares.state_) {
      state_.before_waits = [&shares] { shares.finish(); };
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { state_.before_waits = nullptr; }

   private:
    State& state_;
  };

  DeviceShares(std::shared_ptr<State> state, C peers)
      : state_(std::move(state)), peers_(std::move(peers)), rank_(peers_.rank()) {}

  Rows scratch(int index, std::int64_t rows, std::int64_t width) { return grown(scratch_[index], rows, width); }
  Rows mine(std::int64_t rows, std::int64_t width) { return grown(mine_, rows, width); }
  Rows answers(Rows host) { return grown(answers_, host.extent(0), host.extent(1)); }
  void bring(ConstRows device, Rows host) {
    finish();
    state_->landing.read(state_->stream, host.data, device.data, static_cast<std::size_t>(host.size()) * sizeof(float));
  }
  void finish() { peers_.wait(state_->stream); }

  /// Steps are not recorded, since a record would contain calls that wait for other ranks.
  template <class Step, class Recorded, class Body>
  void record(Step&, Recorded&, Body&& body) {
    body();
    finish();
  }

  void take_own(const RowCut& cut, ConstRows whole, Rows mine) {
    launch<TakeColumns>({.whole = memory(whole),
                         .mine = memory(mine),
                         .cut = cut,
                         .rank = rank_,
                         .rows = static_cast<int>(whole.extent(0))});
  }

  const float* take_own(std::span<const RowRange> columns, const float* whole, int index) {
    std::int64_t width = 0;
    for (const RowRange& range : columns) width += range.count();
    const Rows own = scratch(index, 1, width);
    float* to = own.data;
    for (const RowRange& range : columns) {
      state_->runtime.copy(to, whole + range.first, bytes_of(range.count()), state_->stream);
      to += range.count();
    }
    return own.data;
  }

  void gather(const RowCut& cut, int parts, ConstRows mine, Rows out) {
    const std::int64_t rows = out.extent(0);
    sizes_.clear();
    for (int r = 0; r < peers_.size(); ++r) sizes_.push_back(bytes_of(rows * parts * cut.count(r)));
    const Rows all = gathered(mine, rows, parts * cut.width);
    launch<SpreadColumns>({.all = memory(all),
                           .out = memory(out),
                           .cut = cut,
                           .parts = parts,
                           .rows = static_cast<int>(rows),
                           .stride = static_cast<int>(out.stride(0))});
  }

  /// out [places, stride] = the results of the experts of all places: compute(mine [places, columns]) computes this
  /// rank's.
  template <class Compute>
  void gather_experts(const ExpertCuts& cuts, Rows out, Compute compute) {
    const std::int64_t places = out.extent(0);
    std::int64_t width = 0;
    sizes_.clear();
    for (int r = 0; r < peers_.size(); ++r) {
      width += cuts.columns(r);
      sizes_.push_back(bytes_of(places * cuts.columns(r)));
    }
    const Rows own = mine(places, cuts.columns(rank_));
    if (own.size() > 0) compute(own);
    const Rows all = gathered(own, places, width);
    launch<SpreadExperts>({.all = memory(all),
                           .out = memory(out),
                           .cuts = cuts,
                           .places = static_cast<int>(places),
                           .stride = static_cast<int>(out.extent(1))});
  }

  /// Each rank reads its own rows and contributes as many rows as the step has, since the row's owner is known on the
  /// device only.
  template <class Step, class Take>
  void look_up(Step& step, const RowCut& cut, bool holds_any, std::span<const PlanRow>, int PlanRow::*index, int offset,
               Rows x, Take take) {
    if (holds_any) take(gpu::OwnRows(cut, rank_));
    const std::int64_t rows = x.extent(0), width = x.extent(1);
    sizes_.assign(static_cast<std::size_t>(peers_.size()), bytes_of(rows * width));
    const Rows all = gathered(x, peers_.size() * rows, width);
    launch<SpreadRows>({.all = memory(all),
                        .rows = step.step_rows(),
                        .x = memory(x),
                        .table = {offset, index == &PlanRow::position},
                        .cut = cut,
                        .width = static_cast<int>(width),
                        .count = static_cast<int>(rows)});
  }

  void hand_on(const C& pair, Rows x) {
    const std::span<float> numbers(x.data, static_cast<std::size_t>(x.size()));
    pair.broadcast(std::as_writable_bytes(numbers), 0, state_->stream);
  }

 private:
  using Buffer = DeviceBuffer<float, typename State::Device>;

  Rows grown(Buffer& buffer, std::int64_t rows, std::int64_t width) {
    return {state_->grow(buffer, rows * width), rows, width};
  }
  static std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

  template <class K>
  void launch(const typename K::Args& args) {
    state_->runtime.template launch<K>(args, state_->stream);
  }

  /// Gathers the ranks' contributions of sizes_.
  Rows gathered(ConstRows mine, std::int64_t rows, std::int64_t width) {
    const Rows all = grown(all_, rows, width);
    const std::span<const float> share(mine.data, static_cast<std::size_t>(mine.size()));
    const std::span<float> numbers(all.data, static_cast<std::size_t>(all.size()));
    peers_.all_gather(std::as_bytes(share), sizes_, std::as_writable_bytes(numbers), state_->stream);
    return all;
  }

  std::shared_ptr<State> state_;
  C peers_;
  int rank_;
  Buffer mine_, all_, answers_;
  std::map<int, Buffer> scratch_;
  std::vector<std::size_t> sizes_;
};

}}}
