// Any bytes as a GGUF model: an Error, or a valid shape and tensors inside the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/gguf_model.hpp"
#include "slm/io/gguf_tensors.hpp"

SLM_FUZZER(data, size) {
  try {
    const slm::GgufFile file({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    const slm::ModelDescription model = slm::read_gguf_model(file);
    if (!slm::fault_of(model.config).empty()) std::abort();
    for (const slm::Token token : model.settings.end_tokens) {
      if (token < 0 || token >= model.config.vocab) std::abort();
    }
    const slm::GgufTensors tensors(file, model.config);
    for (const slm::Tensor& tensor : tensors.tensors) {
      volatile std::byte sum{};
      for (std::size_t i = 0; i < tensor.size_bytes; ++i) sum = sum ^ tensor.bytes[i];
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
