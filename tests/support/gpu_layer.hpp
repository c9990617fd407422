// One operation on a GPU backend, real or emulated, beside the same on Reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/reference/reference.hpp"
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

/// What `worst` of a product of random data may be. An input rounded to p bits is off by at most 2^-p of itself, of
/// random sign, so a sum of n such products by 2^-p / sqrt(3) of its own root mean square; five times that is out of
/// reach of rounding and far below a term left out. fp32 is computed as three bfloat16 terms: 2^-22 remain.
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
    device_.synchronize();  // what allocate() writes is on the device's own stream
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

inline std::vector<half_t> halves(const std::vector<float>& values) {
  std::vector<half_t> rounded;
  for (const float value : values) rounded.push_back(from_float<half_t>(value));
  return rounded;
}

inline std::vector<float> floats(const std::vector<half_t>& values) {
  std::vector<float> wide;
  for (const half_t value : values) wide.push_back(to_float(value));
  return wide;
}

/// The pages of a TestCache as halves, each in memory of its own.
template <class Device>
class DeviceCache {
 public:
  DeviceCache(Device device, Heads heads, TestCache& host) : half_(heads.kv * page_positions * heads.dim) {
    for (const std::byte* page : host.table()) {
      const auto* const numbers = reinterpret_cast<const float*>(page);
      pages_.emplace_back(
          device, page == nullptr ? std::vector<half_t>{} : halves(std::vector<float>(numbers, numbers + 2 * half_)));
    }
  }

  KvLayer layer() const { return {.kind = 0, .keys = 0, .values = half_ * std::int64_t{sizeof(half_t)}}; }

  std::vector<std::byte*> table() {
    std::vector<std::byte*> pages;
    for (auto& page : pages_) pages.push_back(reinterpret_cast<std::byte*>(page.data()));
    return pages;
  }

  /// All keys and values.
  std::vector<float> all() {
    std::vector<float> values;
    for (auto& page : pages_) {
      const std::vector<float> numbers = floats(page.read());
      values.insert(values.end(), numbers.begin(), numbers.end());
    }
    return values;
  }

 private:
  std::int64_t half_;
  std::vector<OnDevice<Device, half_t>> pages_;
};

/// A plan of rows that no operation looks at.
inline TestPlan plan_of(int rows) { return TestPlan(std::vector<Token>(static_cast<std::size_t>(rows))); }

inline View<float, 2> view_of(std::vector<float>& values, int rows) {
  return {values.data(), rows, static_cast<int>(values.size()) / rows};
}

}  // namespace slm::testing
