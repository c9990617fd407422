// DefaultBackend: what a program gets that names no backend.
#pragma once

#include "slm/backend/cpu/cpu.hpp"

namespace slm {

using DefaultBackend = backend::Cpu;

}  // namespace slm
