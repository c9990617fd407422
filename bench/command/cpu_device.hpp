// This machine's processor, as reports name it.
#pragma once

#include "bench/command/report.hpp"

namespace slm::bench {

/// threads: that compute.
Device cpu_device(int threads);

}  // namespace slm::bench
