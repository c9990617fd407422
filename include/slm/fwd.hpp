// Forward declarations of slm's types.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

using Token = std::int32_t;

class AnyModel;
class Checkpoint;
class Error;
class TextStream;
class Tokenizer;
struct LoadOptions;
struct ModelConfig;
struct ModelInfo;
struct Sampling;
struct Stats;

namespace backend {
class Cpu;
class Reference;
}  // namespace backend

}}
