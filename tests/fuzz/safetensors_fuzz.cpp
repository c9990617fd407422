// Any bytes as a safetensors file: an Error or tensors that lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/safetensors.hpp"

SLM_FUZZER(data, size) {
  try {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    for (const auto& [name, tensor] : slm::parse_safetensors({bytes, size}, "fuzz")) {
      if (tensor.bytes < bytes || tensor.bytes + tensor.size_bytes > bytes + size) std::abort();
      if (static_cast<std::size_t>(tensor.elements()) * slm::bytes_of(tensor.dtype) != tensor.size_bytes) std::abort();
      volatile std::byte sum{};
      for (std::size_t i = 0; i < tensor.size_bytes; ++i) sum = sum ^ tensor.bytes[i];
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
