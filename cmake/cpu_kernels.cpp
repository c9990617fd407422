// The one source of a program that holds the kernels (docs/building.md, "Compiled once").
#define SLM_INSTANTIATE_CPU_KERNELS
#include "slm/backend/cpu/kernels.hpp"
