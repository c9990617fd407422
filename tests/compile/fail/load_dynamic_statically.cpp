// Model::load checks a folder against a compile-time shape, which Dynamic does not have.
// expect: StaticConfig
#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/model.hpp"

#ifdef SLM_FIXED
using Shape = slm::configs::JackFram_68M;
#else
using Shape = slm::Dynamic;
#endif

auto load(const char* folder) { return slm::Model<Shape, slm::Fp32, slm::backend::Reference>::load(folder); }
