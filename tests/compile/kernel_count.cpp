// Instantiates SLM_MODELS compile-time configs of different shapes over each CPU backend; see kernel_count.py.
#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/model.hpp"
#include "slm/speculative.hpp"

namespace {

template <class Shape>
void use(const char* folder) {
  slm::Session cpu(slm::Model<Shape, slm::Bf16, slm::backend::Cpu>::load(folder));
  slm::Session reference(slm::Model<Shape, slm::Fp32, slm::backend::Reference>::load(folder));
  const slm::Token token = 1;
  cpu.forward({&token, 1}, 1);
  reference.forward({&token, 1}, 1);
}

}  // namespace

int main(int, char** arguments) {
  use<slm::configs::AmdLlama_135M>(arguments[1]);
#if SLM_MODELS > 1
  use<slm::configs::Llama32_1B>(arguments[1]);
#endif
}
