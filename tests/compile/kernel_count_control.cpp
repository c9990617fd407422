// A fault that kernel_count.py must detect: a kernel keyed on the whole config, one function per config.
#include "slm/config/known_models.hpp"

namespace slm::backend {

template <class Config>
int keyed_on_config(int row) {
  return row % Config::value.hidden;
}

}  // namespace slm::backend

int use(int row) {
  int sum = slm::backend::keyed_on_config<slm::configs::AmdLlama_135M>(row);
#if SLM_MODELS > 1
  sum += slm::backend::keyed_on_config<slm::configs::Llama32_1B>(row);
#endif
  return sum;
}
