// Any bytes as an adapter's config: an Error, or a rank and a finite scale for every module, in bounded time.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/io/peft_config.hpp"

SLM_FUZZER(data, size) {
  try {
    const slm::Json json = slm::parse_json_object({reinterpret_cast<const char*>(data), size}, "fuzz");
    const slm::detail::PeftConfig config(json, "fuzz", "adapter_config.json");
    for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head"}) {
      if (config.rank(module) < 1 || config.rank(module) > slm::detail::PeftConfig::most_rank) std::abort();
      if (!std::isfinite(config.scale(module))) std::abort();
    }
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
