// Any bytes as blocks of any type: values inside the bounds of the type, finite where the scales are.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/gguf_types.hpp"

SLM_FUZZER(data, size) {
  if (size == 0) return 0;
  const slm::GgufType* type = slm::gguf_type(data[0]);
  if (!type || !type->dtype) return 0;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1,
                                     reinterpret_cast<const std::byte*>(data) + size);  // of exactly this size
  const auto blocks = static_cast<std::int64_t>(bytes.size() / type->bytes);
  const slm::Tensor tensor{.name = "fuzz",
                           .dtype = *type->dtype,
                           .shape = {blocks, type->values},
                           .bytes = bytes.data(),
                           .size_bytes = bytes.size()};
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  try {
    slm::convert(tensor, 0, tensor.elements(), values.data());
  } catch (const slm::Error& error) {
    check_message(error);
    return 0;
  }
  if (!slm::is_blocked(tensor.dtype)) return 0;
  for (const float value : values) {
    const bool bounded =
        tensor.dtype == slm::DType::mxfp4 ? std::isfinite(value) : std::fabs(value) <= 65504.0f * 63 * 128;
    if (!bounded) std::abort();
  }
  return 0;
}
