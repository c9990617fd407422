// Selects the kernels for the machine at run time.
#pragma once

#include "slm/backend/cpu/isa.hpp"
#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// isa: as resolve() returns it.
const CommonKernels& common_kernels(Isa isa);

constexpr int exact_terms = 3;

/// Element: float, half_t or bfloat16_t. terms: bfloat16 terms per activation; less than exact_terms only if
/// has_bf16_products(isa).
template <class Element>
const MatmulKernels<Element>& matmul_kernels(Isa isa, int terms = exact_terms);

/// terms: bytes per activation, 1 or 2.
const CodeKernels& code_kernels(DotSet set, int terms);

}}}

// nvcc 13.0 fails on these kernels with an internal error. GPU programs compile them in a C++ source.
#if SLM_COMPILES && !SLM_GPU_COMPILER
#define SLM_KERNEL_TEMPLATE template
#include "slm/backend/cpu/simd.hpp"
#else
#define SLM_KERNEL_TEMPLATE extern template
#endif

namespace slm { inline namespace v0_1 { namespace backend::cpu {
SLM_KERNEL_TEMPLATE const MatmulKernels<float>& matmul_kernels<float>(Isa, int);
SLM_KERNEL_TEMPLATE const MatmulKernels<half_t>& matmul_kernels<half_t>(Isa, int);
SLM_KERNEL_TEMPLATE const MatmulKernels<bfloat16_t>& matmul_kernels<bfloat16_t>(Isa, int);
}}}
#undef SLM_KERNEL_TEMPLATE
