// The one source of a program that holds the kernels (docs/building.md, "Several sources").
#define SLM_INSTANTIATE_CPU_KERNELS
#include "slm/backend/cpu/kernels.hpp"
