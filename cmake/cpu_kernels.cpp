#define SLM_INSTANTIATE_CPU_KERNELS
#include "slm/backend/cpu/kernels.hpp"
