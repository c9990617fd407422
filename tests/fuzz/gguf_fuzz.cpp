// Any bytes as a GGUF file, and a valid file with some replaced numbers: an Error, or values and tensors inside the
// bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/gguf.hpp"
#include "support/gguf_builder.hpp"

namespace {

void check_inside(std::string_view file, const std::byte* begin, std::uint64_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(file.data());
  if (begin < first || size > file.size() || begin > first + file.size() - size) std::abort();
}

void parse(std::string_view file) {
  try {
    const auto contents = slm::parse_gguf({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "fuzz");
    for (const auto& [key, value] : contents.fields.entries()) {
      value.described();
      if (value.is(slm::GgufValueType::string)) {
        value.each_string([&](std::string_view text) {
          check_inside(file, reinterpret_cast<const std::byte*>(text.data()), text.size());
        });
      } else {
        check_inside(file, value.bytes, value.count * slm::bytes_of(value.type));
      }
    }
    for (const slm::GgufTensor& tensor : contents.tensors) {
      check_inside(file, tensor.bytes, tensor.size_bytes);
      std::int64_t elements = 1;
      for (const std::int64_t extent : tensor.shape) elements *= extent;
      const auto blocks = elements / tensor.type->values;
      if (static_cast<std::size_t>(blocks) * tensor.type->bytes != tensor.size_bytes) std::abort();
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
}

}  // namespace

SLM_FUZZER(data, size) {
  parse({reinterpret_cast<const char*>(data), size});

  // Each nine bytes replace one number: its index, and the new value.
  static const slm::testing::GgufBytes sound = slm::testing::small_gguf().bytes();
  std::string file = sound.content();
  for (; size >= 9; data += 9, size -= 9) {
    const auto place = sound.places()[data[0] % sound.places().size()];
    std::memcpy(file.data() + place.offset, data + 1, place.size);
  }
  parse(file);
  return 0;
}
