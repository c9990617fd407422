// This machine's processor, as reports name it.
#pragma once

#include "bench/command/report.hpp"
#include "slm/backend/cpu/isa.hpp"

namespace slm::bench {

/// threads: that compute, with this set.
Device cpu_device(int threads, backend::Isa isa = backend::Isa::automatic);

}  // namespace slm::bench
