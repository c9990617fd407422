// A registry holds compile-time shapes only: Dynamic has none.
// expect: StaticConfig
#include "slm/config/known_models.hpp"

#ifdef SLM_FIXED
slm::Registry<slm::configs::Llama2_7B> registry;
#else
slm::Registry<slm::Dynamic> registry;
#endif
