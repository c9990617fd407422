// Exponentials and logarithms with the same bits on different systems. The float functions of C libraries differ in the
// last bit. Those for double have errors of about 2^-53, so their results, rounded to float, differ only if one is that
// close to the middle of two floats.
#pragma once

#include <cmath>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

inline float rounded_exp(float x) { return static_cast<float>(std::exp(double{x})); }
inline float rounded_sigmoid(float x) { return 1.0f / (1.0f + rounded_exp(-x)); }
inline float rounded_softplus(float x) { return x > 20 ? x : static_cast<float>(std::log1p(std::exp(double{x}))); }

}}}
