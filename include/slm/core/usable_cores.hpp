// usable_cores: how many threads of this process can run at the same time.
#pragma once

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// At least 1. Counts the processors in the calling thread's affinity mask, limited by the CPU quotas of control groups
/// (containers).
int usable_cores();

namespace detail {
SLM_HAS_FUNCTIONS(slm_core_usable_cores_hpp)
}

}}

#if SLM_COMPILES
#include "slm/core/usable_cores_functions.hpp"
#endif
