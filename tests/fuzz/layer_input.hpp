// The tensors of a quantized layer from a fuzzer's input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "slm/core/tensor.hpp"

/// Small numbers from the input, zeros when it has ended.
class LayerInput {
 public:
  LayerInput(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  int number() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  void fill(std::vector<std::byte>& bytes) {
    const std::size_t count = std::min(size_, bytes.size());
    if (count > 0) std::memcpy(bytes.data(), data_, count);
    data_ += count;
    size_ -= count;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct LayerTensor {
  std::vector<std::byte> bytes;
  slm::Tensor tensor;

  /// The right type and shape unless the input says otherwise; bytes of exactly its size, so that a sanitizer sees
  /// every step beyond them.
  void make(LayerInput& input, const char* name, slm::DType dtype, const std::vector<std::int64_t>& shape) {
    tensor = {.name = name, .dtype = dtype, .shape = shape, .bytes = nullptr, .size_bytes = 0};
    const int change = input.number();
    if (change & 1) tensor.dtype = static_cast<slm::DType>(input.number() % 11);
    if (change & 2) {
      tensor.shape.clear();
      for (int axis = input.number() % 4; axis > 0; --axis) tensor.shape.push_back(input.number() % 40);
    }
    tensor.size_bytes = static_cast<std::size_t>(tensor.elements()) * slm::bytes_of(tensor.dtype);
    bytes.resize(tensor.size_bytes);
    input.fill(bytes);
    tensor.bytes = bytes.data();
  }
};
