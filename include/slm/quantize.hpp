// Public header for quantization: converts a floating-point model to a 4-bit AWQ folder or a GGUF file.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/awq/gguf_output.hpp"
#include "slm/awq/quantize.hpp"
