// The front door for many requests: an engine that answers them as they come, and a store of many adapters.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/adapters.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/engine/engine.hpp"
#include "slm/speculative.hpp"
