// MaskUpload: copies the masks of a step to the device.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/host_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/plan.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

static_assert(std::endian::native == std::endian::little, "words of 64 bits are read as words of 32 bits");

/// Has no memory before the first step with masks.
template <Runtime R>
class MaskUpload {
 public:
  explicit MaskUpload(R runtime) : runtime_(std::move(runtime)) {}

  /// Waits until the plan's masks are complete, copies those of its outputs in one transfer, and returns the arguments
  /// that apply them to logits [rows, width]. Rows beyond the outputs have no mask.
  Forbid::Args send(const StepPlan& plan, Memory<float> logits, int rows, typename R::Stream& stream) {
    if (plan.before_masks != nullptr && *plan.before_masks) (*plan.before_masks)();
    const int width = static_cast<int>(logits.size / rows), words = (width + 31) / 32;
    const std::size_t each = static_cast<std::size_t>(words) * sizeof(std::uint32_t);
    const std::size_t before = (static_cast<std::size_t>(rows) * sizeof(int) + 15) / 16 * 16;
    const auto count = static_cast<std::size_t>(
        std::count_if(plan.masks.begin(), plan.masks.end(), [](const TokenMask* mask) { return has_words(mask); }));
    reserve(before + count * each, stream);
    std::byte* const to = host_->data();
    auto* const masks_of = reinterpret_cast<int*>(to);
    std::fill(masks_of, masks_of + rows, -1);
    int next = 0;
    for (std::size_t i = 0; i < plan.masks.size(); ++i) {
      if (!has_words(plan.masks[i])) continue;
      const TokenMask& mask = *plan.masks[i];
      std::byte* const own = to + before + static_cast<std::size_t>(next) * each;
      const std::size_t known = std::min(each, mask.size_bytes());
      std::memcpy(own, mask.data(), known);
      std::memset(own + known, 0, each - known);
      masks_of[i] = next++;
    }
    runtime_.copy_in(device_.data(), to, before + count * each, stream);
    runtime_.record(*sent_, stream);
    return {.logits = logits,
            .masks_of = {reinterpret_cast<const int*>(device_.data()), rows},
            .masks = {reinterpret_cast<const std::uint32_t*>(device_.data() + before), std::int64_t{next} * words},
            .width = width,
            .rows = rows};
  }

 private:
  static constexpr std::size_t first_size = std::size_t{64} << 10;

  static bool has_words(const TokenMask* mask) { return mask != nullptr && !mask->empty(); }

  /// Provides memory that no earlier copy or kernel uses.
  void reserve(std::size_t size, typename R::Stream& stream) {
    if (sent_) {
      runtime_.synchronize(*sent_);
    } else {
      sent_.emplace(runtime_.make_event());
    }
    if (size <= device_.size()) return;
    size = std::bit_ceil(std::max(size, first_size));
    runtime_.synchronize(stream);
    device_ = {};
    device_ = DeviceBuffer<std::byte, R>(runtime_, size);
    host_.emplace(runtime_, size);
  }

  R runtime_;
  DeviceBuffer<std::byte, R> device_;
  std::optional<HostBuffer<R>> host_;
  std::optional<typename R::Event> sent_;
};

}}}
