// Any layout, size, types, shapes and bytes of a 4-bit layer: an Error, or codes and zero points of 0..15 from inside
// the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "message.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_rows.hpp"

namespace {

/// Small numbers from the input, zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
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

struct OneTensor {
  std::vector<std::byte> bytes;
  slm::Tensor tensor;
};

/// The correct type and shape unless the input changes them; bytes of exactly its size, so that a sanitizer detects
/// every access beyond them.
void make(Input& input, const char* name, slm::DType dtype, const std::vector<std::int64_t>& shape, OneTensor& out) {
  out.tensor = {.name = name, .dtype = dtype, .shape = shape, .bytes = nullptr, .size_bytes = 0};
  const int change = input.number();
  if (change & 1) out.tensor.dtype = static_cast<slm::DType>(input.number() % 10);
  if (change & 2) {
    out.tensor.shape.clear();
    for (int axis = input.number() % 4; axis > 0; --axis) out.tensor.shape.push_back(input.number() % 40);
  }
  out.tensor.size_bytes = static_cast<std::size_t>(out.tensor.elements()) * slm::bytes_of(out.tensor.dtype);
  out.bytes.resize(out.tensor.size_bytes);
  input.fill(out.bytes);
  out.tensor.bytes = out.bytes.data();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  slm::Int4Tensor layer;
  layer.name = "fuzz";
  layer.layout = static_cast<slm::Int4Layout>(input.number() % 7);
  layer.out = input.number() % 40 + 1;
  layer.in = (input.number() % 40 + 1) * (input.number() % 2 == 0 ? 1 : 8);
  layer.group = input.number();
  const int form = input.number();
  layer.twos_complement = form % 2 != 0;
  layer.zeros_less_one = form / 2 % 2 != 0;
  const auto shapes = slm::shapes_of(layer.layout, layer.out, layer.in, std::max<std::int64_t>(layer.group, 1));
  OneTensor codes, scales, zeros;
  make(input, "codes", shapes.code_dtype, shapes.codes, codes);
  make(input, "scales", slm::DType::f16, shapes.scales, scales);
  layer.codes = &codes.tensor;
  layer.scales = &scales.tensor;
  if (input.number() % 2 != 0) {
    make(input, "zeros", slm::has_integer_zeros(layer.layout) ? slm::DType::i32 : slm::DType::f16, shapes.zeros, zeros);
    layer.zeros = &zeros.tensor;
  }
  try {
    slm::check_int4(layer, "fuzz");
  } catch (const slm::Error& error) {
    check_message(error);
    return 0;
  }
  const std::int64_t first = input.number() % layer.out;
  for (const slm::Int4Rows& rows : {slm::unpack(layer, 0, layer.out), slm::unpack(layer, first, layer.out - first)}) {
    const auto beyond = [](std::uint8_t value) { return value > 15; };
    if (std::any_of(rows.codes.begin(), rows.codes.end(), beyond)) std::abort();
    if (std::any_of(rows.zeros.begin(), rows.zeros.end(), beyond)) std::abort();
  }
  return 0;
}
