// This machine's CPU, as reports name it.
#pragma once

#include "bench/command/report.hpp"
#include "slm/backend/cpu/isa.hpp"

namespace slm::bench {

/// threads: compute threads. isa: the instruction set in use.
Device cpu_device(int threads, backend::Isa isa = backend::Isa::automatic);

}  // namespace slm::bench
