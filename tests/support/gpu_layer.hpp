// One operation on a GPU backend, real or emulated, and the same on Reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/format_cache.hpp"
#include "support/random_layer.hpp"

namespace slm::testing {

/// The largest difference, in units of the expected values' root mean square. NaN if anything is NaN.
inline double worst(const std::vector<float>& found, const std::vector<float>& expected) {
  double squares = 0, largest = 0;
  for (const float v : expected) squares += double{v} * double{v};
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(expected.size(), 1)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double{found[i]} - double{expected[i]});
    if (!(difference <= largest)) largest = difference;
  }
  return rms == 0 ? largest : largest / rms;
}

/// The bound of `worst` for a product of random data. Rounding an input to p bits changes it by at most 2^-p of itself
/// with random sign, so a sum of n such products by 2^-p / sqrt(3) of its own root mean square. Five times that exceeds
/// all rounding errors and is far below a missing term. fp32 is computed as three bfloat16 terms: 2^-22 remain.
template <class Format>
constexpr double product_tolerance() {
  if (std::is_same_v<Format, Fp32>) return 1e-5;
  if (std::is_same_v<Format, Fp16>) return 5 * 0x1p-12;
  return 5 * 0x1p-9;
}

/// Numbers in the memory of a device.
template <class Device, class T = float>
class OnDevice {
 public:
  OnDevice(Device device, const std::vector<T>& values) : device_(device), size_(values.size()) {
    buffer_ = device_.template allocate<T>(size_);
    auto stream = device_.runtime().make_stream();
    device_.synchronize();  // the writes of allocate() are on the device's own stream
    if (size_ > 0) device_.runtime().copy_in(buffer_.data(), values.data(), size_ * sizeof(T), stream);
    device_.runtime().synchronize(stream);
  }

  T* data() { return buffer_.data(); }
  View<T, 2> rows(int count) { return {buffer_.data(), count, static_cast<int>(size_) / count}; }
  View<const T, 2> rows(int first, int count, int width) const {
    return {buffer_.data() + first * width, count, width};
  }

  std::vector<T> read() {
    std::vector<T> values(size_);
    device_.synchronize();
    auto stream = device_.runtime().make_stream();
    if (size_ > 0) device_.runtime().copy_out(values.data(), buffer_.data(), size_ * sizeof(T), stream);
    device_.runtime().synchronize(stream);
    return values;
  }

 private:
  Device device_;
  std::size_t size_;
  typename Device::template Buffer<T> buffer_;
};

/// The pages of a FormatCache, each in separate device memory.
template <class Device>
class DeviceCache {
 public:
  DeviceCache(Device device, const FormatCache& host) : host_(host) {
    for (const std::vector<std::byte>& page : host.pages()) pages_.emplace_back(device, page);
  }

  KvLayer layer() const { return host_.layer(); }

  std::vector<std::byte*> table() {
    std::vector<std::byte*> pages;
    for (auto& page : pages_) pages.push_back(page.data());
    return pages;
  }

  FormatCache& read() {
    for (std::size_t page = 0; page < pages_.size(); ++page) host_.set_page(page, pages_[page].read());
    return host_;
  }

 private:
  FormatCache host_;
  std::vector<OnDevice<Device, std::byte>> pages_;
};

/// A plan of rows for operations that do not read it.
inline TestPlan plan_of(int rows) { return TestPlan(std::vector<Token>(static_cast<std::size_t>(rows))); }

inline View<float, 2> view_of(std::vector<float>& values, int rows) {
  return {values.data(), rows, static_cast<int>(values.size()) / rows};
}

}  // namespace slm::testing
