// A type without the operations is not a backend.
// expect: Backend
#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/model.hpp"

struct Toaster {};

#ifdef SLM_FIXED
using Device = slm::backend::Reference;
#else
using Device = Toaster;
#endif

slm::Model<slm::configs::JackFram_68M, slm::Fp32, Device>* model = nullptr;
