// Any bytes as a config.json: an Error or a valid shape.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/config_json.hpp"

SLM_FUZZER(data, size) {
  try {
    const auto json = slm::parse_json_object({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto model = slm::read_config_json(json, "fuzz");
    if (!slm::fault_of(model.config).empty() || !slm::fault_of(model.config, model.settings).empty()) std::abort();
    for (const slm::Token token : model.settings.end_tokens) {
      if (token < 0 || token >= model.config.vocab) std::abort();
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
