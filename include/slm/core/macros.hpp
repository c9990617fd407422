// The one place that knows which compiler is at work, and the library's version.
#pragma once

#define SLM_VERSION_MAJOR 0
#define SLM_VERSION_MINOR 1
#define SLM_VERSION_PATCH 0

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "slm needs C++20: compile with -std=c++20 or newer"
#endif

/// The architecture of the processor.
#if defined(__x86_64__)
#define SLM_ARCH_X86_64 1
#else
#define SLM_ARCH_X86_64 0
#endif
#if defined(__aarch64__)
#define SLM_ARCH_AARCH64 1
#else
#define SLM_ARCH_AARCH64 0
#endif

/// A function that runs on the host and, where a GPU compiler is at work, on the device too.
#if defined(__CUDACC__)
#define SLM_DEVICE __host__ __device__ __forceinline__
#elif defined(__HIPCC__)  // HIP's __forceinline__ is a macro of its runtime header, which most headers do without
#define SLM_DEVICE __host__ __device__ inline __attribute__((always_inline))
#else
#define SLM_DEVICE inline
#endif

/// Before a loop whose number of turns is a constant.
#if defined(__CUDACC__) || defined(__clang__)
#define SLM_UNROLL _Pragma("unroll")
#else
#define SLM_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__FAST_MATH__)
#error "slm promises bit-exact results and NaN checks: compile without -ffast-math"
#endif

// Where the functions of slm are compiled. The first source of a program needs nothing: a header brings its functions
// along. Each further source may say, before it includes a header of slm,
//
//   #define SLM_IMPLEMENTATION 0
//
// and then has declarations only. `#define SLM_IMPLEMENTATION 1` may mark the source that has the functions: two such
// sources in one program are an error of the linker. The CMake target slm::compiled is such a source.
#if !defined(SLM_IMPLEMENTATION)
#define SLM_COMPILES 1
#elif 0 - SLM_IMPLEMENTATION - 1 != -1  // it is 1, or defined as nothing
#define SLM_COMPILES 1
namespace slm { inline namespace v0_1 { namespace detail {
void two_sources_of_this_program_define_SLM_IMPLEMENTATION_1() {}
}}}
#else
#define SLM_COMPILES 0
#endif

/// A function that other sources may call though this one does not, and templates that are compiled for them.
#if SLM_COMPILES
#define SLM_INLINE inline __attribute__((used))
#define SLM_TEMPLATE template
#else
#define SLM_INLINE inline
#define SLM_TEMPLATE extern template
#endif

/// In a header whose functions another source may compile: a program without that source does not link, and the linker
/// names this function.
#if SLM_COMPILES
#define SLM_HAS_FUNCTIONS(header) \
  SLM_INLINE void one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0() {}
#else
#define SLM_HAS_FUNCTIONS(header)                                         \
  void one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0(); \
  [[gnu::used]] static void (*const needs_##header)() = one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0;
#endif
