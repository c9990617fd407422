// The kernels for the machine that the program runs on.
//
// Their code is most of what a source with backend::Cpu compiles: every instruction set, 15 s. A program of several
// sources can compile it once: all of them with SLM_EXTERN_CPU_KERNELS defined, and in one of them besides
//
//   #define SLM_INSTANTIATE_CPU_KERNELS
//   #include <slm/backend/cpu/kernels.hpp>
#pragma once

#include "slm/backend/cpu/isa.hpp"
#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// isa: as resolve() returns it.
template <int = 0>
const CommonKernels& common_kernels(Isa isa);

constexpr int exact_terms = 3;

/// terms: bfloat16 terms of an activation, less than exact_terms where has_bf16_products(isa) only.
template <class Element>
const MatmulKernels<Element>& matmul_kernels(Isa isa, int terms = exact_terms);

/// terms: bytes of an activation, 1 or 2.
template <int = 0>
const CodeKernels& code_kernels(DotSet set, int terms);

}}}

#if !defined(SLM_EXTERN_CPU_KERNELS) || defined(SLM_INSTANTIATE_CPU_KERNELS)
#include "slm/backend/cpu/simd.hpp"
#endif

#if defined(SLM_EXTERN_CPU_KERNELS)
#if defined(SLM_INSTANTIATE_CPU_KERNELS)
#define SLM_TEMPLATE template
#else
#define SLM_TEMPLATE extern template
#endif
namespace slm { inline namespace v0_1 { namespace backend::cpu {
SLM_TEMPLATE const CommonKernels& common_kernels<>(Isa);
SLM_TEMPLATE const MatmulKernels<float>& matmul_kernels<float>(Isa, int);
SLM_TEMPLATE const MatmulKernels<half_t>& matmul_kernels<half_t>(Isa, int);
SLM_TEMPLATE const MatmulKernels<bfloat16_t>& matmul_kernels<bfloat16_t>(Isa, int);
SLM_TEMPLATE const CodeKernels& code_kernels<>(DotSet, int);
}}}
#undef SLM_TEMPLATE
#endif
