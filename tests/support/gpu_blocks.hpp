// Products of weights in GGUF's blocks by backend::Gpu against Reference: every type, mixtures, both variants with the
// same bits; embeddings; and wrong weights, which must be detected. The same bodies run on emulated and real devices.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/formats/block_tiles.hpp"
#include "support/block_matrix.hpp"
#include "support/gpu_layer.hpp"
#include "support/in_turn.hpp"

namespace slm::testing {

/// Matrices of these types, one below another.
class StackedBlocks {
 public:
  StackedBlocks(const std::vector<DType>& types, std::int64_t out, std::int64_t in) : out_(out), in_(in) {
    for (const DType type : types) parts_.push_back(std::make_unique<BlockMatrix>(type, out, in, 17 + parts_.size()));
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(parts_.size()) * out_; }
  std::vector<LinearSource> sources() const {
    std::vector<LinearSource> all;
    for (const auto& part : parts_) all.push_back(part->tensor);
    return all;
  }
  float weight(std::int64_t output, std::int64_t k) const {
    return part_of(output).weights[static_cast<std::size_t>(output % out_ * in_ + k)];
  }

  /// The largest difference of the product of a weight and 1 from the weight. A 4-bit element enters as 128 + code, so
  /// sum and difference of up to 144 scales are rounded, each by 2^-24 at most; an 8-bit element is the code.
  double tolerance(std::int64_t output, std::int64_t k) const {
    if (block_tiles_of(sources()).bits == 8) return 0;
    const Tensor& tensor = part_of(output).tensor;
    const std::int64_t values = values_of_block(tensor.dtype);
    GgufBlock block;
    decode_block(tensor, (output % out_ * in_ + k) / values, block);
    const auto group = static_cast<std::size_t>(k % values / block.group);
    return 2 * 0x1p-24 * (144 * std::abs(double{block.scale_of(group)}) + std::abs(double{block.minimum_of(group)}));
  }

  /// Changes a byte of the first block of each output of the last matrix.
  void spoil(std::size_t place, int change) {
    BlockMatrix& last = *parts_.back();
    const std::size_t row = last.bytes.size() / static_cast<std::size_t>(out_);
    for (std::size_t at = place; at < last.bytes.size(); at += row) {
      last.bytes[at] = static_cast<std::byte>(static_cast<int>(last.bytes[at]) ^ change);
    }
  }

 private:
  const BlockMatrix& part_of(std::int64_t output) const { return *parts_[static_cast<std::size_t>(output / out_)]; }

  std::int64_t out_, in_;
  std::vector<std::unique_ptr<BlockMatrix>> parts_;
};

/// The weights in a device's products: rows that are 1 at one input and 0 elsewhere   [in, rows]
template <class Device>
std::vector<float> weights_on_device(const StackedBlocks& blocks, std::int64_t in, int most_vector_rows) {
  std::vector<float> ones(static_cast<std::size_t>(in * in));
  for (std::int64_t k = 0; k < in; ++k) ones[static_cast<std::size_t>(k * in + k)] = 1;
  Device device(backend::GpuOptions{.most_vector_rows = most_vector_rows});
  const auto weight = device.template pack<AwqInt4<>>(blocks.sources());
  const int rows = static_cast<int>(in);
  OnDevice<Device> from(device, ones), to(device, std::vector<float>(static_cast<std::size_t>(in * blocks.rows())));
  device.begin(plan_of(rows)).project(from.rows(rows), Linear{weight}, to.rows(rows));
  return to.read();
}

inline bool are_weights(const std::vector<float>& found, const StackedBlocks& blocks, std::int64_t in) {
  for (std::int64_t k = 0; k < in; ++k) {
    for (std::int64_t o = 0; o < blocks.rows(); ++o) {
      const double is = found[static_cast<std::size_t>(k * blocks.rows() + o)];
      if (!(std::abs(is - double{blocks.weight(o, k)}) <= blocks.tolerance(o, k))) return false;
    }
  }
  return true;
}

/// Positions of bytes in a type's block, with a change that makes the tile wrong: the sign of the minimum, or else of
/// the scale, and the lowest bit of a factor.
inline std::vector<std::pair<std::size_t, int>> faults_of(DType type) {
  const std::size_t scale = scale_place(type);
  std::vector<std::pair<std::size_t, int>> faults{{code_tiles_of(type).has_minima() ? scale + 3 : scale + 1, 0x80}};
  switch (type) {
    case DType::q4_k:
    case DType::q5_k: faults.push_back({4, 1}); break;
    case DType::q6_k: faults.push_back({192, 1}); break;
    case DType::q2_k: faults.push_back({0, 1}); break;
    case DType::q3_k: faults.push_back({96, 1}); break;
    default: break;
  }
  return faults;
}

/// The largest difference of a product of the rows of `input`, for each output relative to the root of the sum of the
/// squares of its terms: outputs of random blocks differ in size.
inline double worst_of_terms(const std::vector<float>& found, const std::vector<float>& expected,
                             const StackedBlocks& blocks, const std::vector<float>& input, std::int64_t in) {
  double largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), row = at / blocks.rows(), output = at % blocks.rows();
    double squares = 0;
    for (std::int64_t k = 0; k < in; ++k) {
      const double term = double{blocks.weight(output, k)} * double{input[static_cast<std::size_t>(row * in + k)]};
      squares += term * term;
    }
    const double one = std::abs(double{found[i]} - double{expected[i]}) / std::sqrt(squares);
    if (!(one <= largest)) largest = one;
  }
  return largest;
}

template <class Device>
void check_blocks_of(const std::vector<DType>& types, std::int64_t out, std::int64_t in) {
  CAPTURE(std::string(name_of(types.front())), types.size(), out, in, Device::name);
  StackedBlocks blocks(types, out, in);
  const std::vector<LinearSource> sources = blocks.sources();
  backend::Reference reference;
  const auto plain = reference.pack<AwqInt4<>>(sources);
  for (const int rows : in_turn({1, 7, 40})) {
    CAPTURE(rows);
    Random random(5);
    const std::vector<float> input = random.vector(static_cast<std::size_t>(rows * in)),
                             start = random.vector(static_cast<std::size_t>(rows * blocks.rows()));
    std::vector<float> given = input, expected = start;
    reference.begin(plan_of(rows)).project(view_of(given, rows), Linear{plain}, view_of(expected, rows));
    std::vector<std::vector<float>> found;
    for (const int most : {1000, 0}) {
      Device device(backend::GpuOptions{.device = Device::emulated && most == 0, .most_vector_rows = most});
      const auto weight = device.template pack<AwqInt4<>>(sources);
      CHECK(weight.bytes() < 2 * blocks.rows() * in);
      OnDevice<Device> x(device, start), from(device, input);
      device.begin(plan_of(rows)).project(from.rows(rows), Linear{weight}, x.rows(rows));
      found.push_back(x.read());
      CHECK(worst_of_terms(found.back(), expected, blocks, input, in) < product_tolerance<Bf16>());
    }
    CHECK(std::memcmp(found[0].data(), found[1].data(), start.size() * sizeof(float)) == 0);
  }
  for (const int most : {1000, 0}) CHECK(are_weights(weights_on_device<Device>(blocks, in, most), blocks, in));
  {
    Device device;
    const auto weight = device.template pack<AwqInt4<>>(sources);
    const std::vector<Token> tokens{0, static_cast<Token>(blocks.rows() - 1), 7};
    std::vector<float> expected(static_cast<std::size_t>(3 * in));
    OnDevice<Device> found(device, expected);
    const TestPlan plan(tokens);
    device.begin(plan).embed(weight, found.rows(3));
    reference.begin(plan).embed(plain, view_of(expected, 3));
    CHECK(found.read() == expected);
  }
  for (const auto& [place, change] : faults_of(types.back())) {
    CAPTURE(place, change);
    blocks.spoil(place, change);  // leaves the expected weights
    CHECK_FALSE(are_weights(weights_on_device<Device>(blocks, in, 0), blocks, in));
    blocks.spoil(place, change);
  }
}

/// Of 16 outputs or more and of less, of depths with and without idle waves.
template <class Device>
void check_blocks() {
  for (const DType type : block_types) {
    check_blocks_of<Device>({type}, 20, values_of_block(type) == 256 ? 256 : 96);
  }
  for (const DType type : {DType::q4_0, DType::q5_1, DType::q4_k, DType::q6_k}) {
    check_blocks_of<Device>({type}, 36, 768);
  }
  // Types that one matrix may contain: llama.cpp's values beside queries, and more.
  check_blocks_of<Device>({DType::q4_k, DType::q4_k, DType::q6_k}, 18, 256);
  check_blocks_of<Device>({DType::q5_0, DType::q8_0}, 16, 96);
  check_blocks_of<Device>({DType::q3_k, DType::q2_k, DType::q5_k}, 18, 256);
  check_blocks_of<Device>({DType::q4_1, DType::q4_0}, 18, 64);
}

}  // namespace slm::testing
