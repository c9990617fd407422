// Any bytes as a quantization_config: an Error or settings that a loader can follow.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/quantization_json.hpp"

SLM_FUZZER(data, size) {
  try {
    const auto json = slm::parse_json_object({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto settings = slm::read_quantization_json(json, "fuzz");
    using Form = slm::StatedQuantization::Form;
    const bool rules = !settings.rules.empty() || !settings.eight_bits.empty();
    if (rules != (settings.is_stated() && settings.form != Form::fp8)) std::abort();
    if (settings.form == Form::gptq && settings.rules.size() != 1) std::abort();
    for (const slm::Int4Rule& rule : settings.rules) {
      if (rule.group < -1 || rule.group > 1 << 22) std::abort();
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
