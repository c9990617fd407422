// Public header for serving: an engine that answers many concurrent requests, and a store of LoRA adapters.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/adapters.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/engine/engine.hpp"
#include "slm/speculative.hpp"
