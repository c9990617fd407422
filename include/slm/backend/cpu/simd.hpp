// Includes the kernels for every instruction set of this compiler; kernels.hpp selects among them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "slm/backend/cpu/isa.hpp"
#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/core/dim.hpp"
#include "slm/core/types.hpp"

#if SLM_CPU_X86
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// GCC's intrinsics of AMX pass the distance of rows to the assembler as a `long`, which must have 64 bits. Windows,
// where it has 32, grants no registers of AMX (core/os/processors.hpp).
#if SLM_CPU_AVX512 && __SIZEOF_LONG__ == 8
#define SLM_CPU_AMX 1
#else
#define SLM_CPU_AMX 0
#endif

static_assert(std::endian::native == std::endian::little, "the kernels read bfloat16 pairs as little-endian words");

#define SLM_KERNEL inline __attribute__((always_inline))
#define SLM_LAMBDA __attribute__((always_inline))
#define SLM_NOINLINE __attribute__((noinline))
#pragma push_macro("SLM_CPU_UNROLL")  // the GPU kernels define their own
#undef SLM_CPU_UNROLL
#if defined(__clang__)
#define SLM_CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SLM_CPU_UNROLL _Pragma("GCC unroll 32")
#endif
// Lanes of two Floats by index. nvcc's front end does not expand a pack inside __builtin_shufflevector.
#if defined(__NVCC__)
#define SLM_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Integers{__VA_ARGS__})
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // it passes "GCC unroll" through without recognising it
#else
#define SLM_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

namespace slm { inline namespace v0_1 { namespace backend::cpu {

// A source compiled for newer processors (-mfma, -march=native) shares its portable kernels with other sources, since
// the linker keeps one copy. Without this target attribute the compiler would fuse their multiplications and additions.
#if SLM_CPU_X86 && defined(__AVX__)
#define SLM_PORTABLE_TARGET 1
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("no-avx,no-fma,no-fma4"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("no-avx,no-fma,no-fma4")
#endif
#endif
namespace portable {
#define SLM_SET 0
#define SLM_LANES 4
#if defined(__aarch64__)
#define SLM_REGISTERS 32
#else
#define SLM_REGISTERS 16
#endif
#include "slm/backend/cpu/simd.inc"

#include "slm/backend/cpu/row_kernels.inc"

#include "slm/backend/cpu/recurrence_kernels.inc"

#include "slm/backend/cpu/matmul_kernels.inc"

#include "slm/backend/cpu/attention_scores.inc"

#include "slm/backend/cpu/attention_kernels.inc"

#include "slm/backend/cpu/code_pack.inc"
#define SLM_DOT 0
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
#undef SLM_REGISTERS
}  // namespace portable
#if defined(SLM_PORTABLE_TARGET)
#undef SLM_PORTABLE_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#if SLM_CPU_NEON_SETS

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
namespace neon_dot {
using namespace portable;
#define SLM_DOT 3
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
}  // namespace neon_dot
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif
namespace neon_i8mm {
using namespace portable;
#define SLM_DOT 4
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
}  // namespace neon_i8mm
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // SLM_CPU_NEON_SETS
#undef SLM_SET
#undef SLM_LANES

#if SLM_CPU_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace avx2 {
#define SLM_SET 2
#define SLM_LANES 8
#define SLM_REGISTERS 16
#include "slm/backend/cpu/simd.inc"

#include "slm/backend/cpu/row_kernels.inc"

#include "slm/backend/cpu/recurrence_kernels.inc"

#include "slm/backend/cpu/matmul_kernels.inc"

#include "slm/backend/cpu/attention_scores.inc"

#include "slm/backend/cpu/attention_kernels.inc"

#include "slm/backend/cpu/code_pack.inc"
#define SLM_DOT 1
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
#undef SLM_SET
#undef SLM_LANES
#undef SLM_REGISTERS
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
namespace avx2_vnni {
using namespace avx2;
#define SLM_SET 2
#define SLM_LANES 8
#define SLM_DOT 2
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
#undef SLM_SET
#undef SLM_LANES
}  // namespace avx2_vnni
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // SLM_CPU_X86

#if SLM_CPU_AVX512

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif
namespace avx512 {
#define SLM_SET 3
#define SLM_LANES 16
#define SLM_REGISTERS 32
#include "slm/backend/cpu/simd.inc"

#include "slm/backend/cpu/row_kernels.inc"

#include "slm/backend/cpu/recurrence_kernels.inc"

#include "slm/backend/cpu/matmul_kernels.inc"

#include "slm/backend/cpu/bf16_dot_kernels.inc"

#include "slm/backend/cpu/attention_scores.inc"

#include "slm/backend/cpu/attention_kernels.inc"

#include "slm/backend/cpu/code_pack.inc"
#undef SLM_SET
#undef SLM_LANES
#undef SLM_REGISTERS
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif
namespace avx512_vnni {
using namespace avx512;
#define SLM_SET 3
#define SLM_LANES 16
#define SLM_DOT 2
#include "slm/backend/cpu/code_scales.inc"

#include "slm/backend/cpu/code_dots.inc"

#include "slm/backend/cpu/code_kernels.inc"
#undef SLM_DOT
#undef SLM_SET
#undef SLM_LANES
}  // namespace avx512_vnni
#if SLM_CPU_AMX
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                                                 \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8"))), \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8")
#endif
namespace amx_int8 {
using namespace avx512_vnni;
#include "slm/backend/cpu/code_amx_kernels.inc"
}  // namespace amx_int8
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
#endif
namespace amx {
using namespace avx512;
#include "slm/backend/cpu/amx_kernels.inc"
}  // namespace amx
#endif  // SLM_CPU_AMX
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // SLM_CPU_AVX512

SLM_INLINE const CommonKernels& common_kernels(Isa isa) {
#if SLM_CPU_AVX512
  if (isa == Isa::avx512 || isa == Isa::amx) return avx512::common_kernels;
#endif
#if SLM_CPU_X86
  if (isa == Isa::avx2) return avx2::common_kernels;
#endif
  static_cast<void>(isa);
  return portable::common_kernels;
}

template <class Element>
const MatmulKernels<Element>& matmul_kernels(Isa isa, int terms) {
#if SLM_CPU_AVX512
  if constexpr (std::is_same_v<Element, bfloat16_t>) {
#if SLM_CPU_AMX
    if (isa == Isa::amx) {
      if (terms == 1) return amx::bf16_kernels<1>;
      return terms == 2 ? amx::bf16_kernels<2> : amx::bf16_kernels<3>;
    }
#endif
    if (isa == Isa::avx512 && terms == 1) return avx512::kernels_of<avx512::DotOfPairs<1>>;
    if (isa == Isa::avx512 && terms == 2) return avx512::kernels_of<avx512::DotOfPairs<2>>;
  }
  if (isa == Isa::avx512 || isa == Isa::amx) return avx512::matmul_kernels<Element>;
#endif
#if SLM_CPU_X86
  if (isa == Isa::avx2) return avx2::matmul_kernels<Element>;
#endif
  static_cast<void>(isa);
  static_cast<void>(terms);
  return portable::matmul_kernels<Element>;
}

SLM_INLINE const CodeKernels& code_kernels(DotSet set, int terms) {
  const auto choose = [terms](const CodeKernels& one, const CodeKernels& two) -> const CodeKernels& {
    return terms == 1 ? one : two;
  };
#if SLM_CPU_X86
  switch (set) {
#if SLM_CPU_AMX
    case DotSet::amx: return choose(avx512_vnni::code_kernels<1>, amx_int8::code_amx_kernels);
#endif
#if SLM_CPU_AVX512
    case DotSet::avx512_vnni: return choose(avx512_vnni::code_kernels<1>, avx512_vnni::code_kernels<2>);
#endif
    case DotSet::avx2_vnni: return choose(avx2_vnni::code_kernels<1>, avx2_vnni::code_kernels<2>);
    case DotSet::avx2: return choose(avx2::code_kernels<1>, avx2::code_kernels<2>);
    default: break;
  }
#elif SLM_CPU_NEON_SETS
  if (set == DotSet::neon_i8mm) return choose(neon_i8mm::code_kernels<1>, neon_i8mm::code_kernels<2>);
  if (set == DotSet::neon_dot) return choose(neon_dot::code_kernels<1>, neon_dot::code_kernels<2>);
#endif
  static_cast<void>(set);
  return choose(portable::code_kernels<1>, portable::code_kernels<2>);
}

}}}

#undef SLM_KERNEL
#undef SLM_LAMBDA
#undef SLM_NOINLINE
#undef SLM_CPU_UNROLL
#pragma pop_macro("SLM_CPU_UNROLL")
#undef SLM_SHUFFLE
#if defined(__NVCC__)
#pragma nv_diagnostic pop
#endif
