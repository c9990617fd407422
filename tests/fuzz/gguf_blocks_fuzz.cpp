// Any bytes as blocks of any type: values inside the bounds of the type, finite where the scales are.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "slm/formats/gguf_blocks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const slm::GgufTypeInfo* info = slm::gguf_type_info(data[0]);
  if (!info || !info->readable) return 0;
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1,
                                     reinterpret_cast<const std::byte*>(data) + size);  // of exactly this size
  const auto blocks = static_cast<std::int64_t>(bytes.size()) / info->bytes;
  std::vector<float> values(static_cast<std::size_t>(blocks * info->values));
  slm::dequantize(info->type(), bytes.data(), blocks * info->values, values.data());
  try {
    slm::check_scales(info->type(), bytes.data(), blocks * info->values, "fuzz");
  } catch (const slm::Error&) {
    return 0;
  }
  if (slm::is_dense(info->type())) return 0;
  for (const float value : values) {
    if (!(std::fabs(value) <= 65504.0f * 63 * 128)) std::abort();
  }
  return 0;
}
