// The front door for many requests: an engine that answers them as they come.
#pragma once

#include "slm/engine/engine.hpp"
#include "slm/speculative.hpp"
