// The door to quantization: a floating-point model folder becomes a 4-bit AWQ one.
#pragma once

#include "slm/awq/quantize.hpp"
