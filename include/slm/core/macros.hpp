// Compiler detection and the library's version. No other header tests for a compiler.
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

/// A function for the host and, under a GPU compiler, for the device too.
#if defined(__CUDACC__)
#define SLM_DEVICE __host__ __device__ __forceinline__
#elif defined(__HIPCC__)  // HIP's __forceinline__ is a macro of its runtime header, which most headers do without
#define SLM_DEVICE __host__ __device__ inline __attribute__((always_inline))
#else
#define SLM_DEVICE inline
#endif

/// 1 under a GPU compiler.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define SLM_GPU_COMPILER 1
#else
#define SLM_GPU_COMPILER 0
#endif

/// Precedes a loop with a constant trip count.
#if defined(__CUDACC__) || defined(__clang__)
#define SLM_UNROLL _Pragma("unroll")
#else
#define SLM_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__FAST_MATH__)
#error "slm promises bit-exact results and NaN checks: compile without -ffast-math"
#endif

// Parts that a program can leave out, to compile faster (docs/compile-time.md): define the macro for all its sources.
//
//  SLM_NO_GGUF     GGUF files
//  SLM_NO_FOLDERS  Hugging Face folders
//  SLM_NO_AVX512   kernels of backend::Cpu for AVX-512 and AMX
//  SLM_NO_AVX2     kernels of backend::Cpu for AVX2 and everything newer
//
// The name of slm's inline namespace states the parts that are left out, so sources that differ in them share neither
// types nor functions: a call from one to the other does not link.
#if defined(SLM_NO_GGUF) && defined(SLM_NO_FOLDERS)
#error "SLM_NO_GGUF and SLM_NO_FOLDERS leave no model to read: define one of them"
#endif
#if defined(SLM_NO_GGUF)
#define SLM_FORMATS _no_gguf
#elif defined(SLM_NO_FOLDERS)
#define SLM_FORMATS _no_folders
#else
#define SLM_FORMATS
#endif
#if defined(SLM_NO_AVX2)
#define SLM_KERNEL_SETS _no_avx2
#elif defined(SLM_NO_AVX512)
#define SLM_KERNEL_SETS _no_avx512
#else
#define SLM_KERNEL_SETS
#endif
#if defined(SLM_NO_GGUF) || defined(SLM_NO_FOLDERS) || defined(SLM_NO_AVX2) || defined(SLM_NO_AVX512)
#define SLM_JOIN_NAMES(version, formats, sets) version##formats##sets
#define SLM_JOIN(version, formats, sets) SLM_JOIN_NAMES(version, formats, sets)
#define v0_1 SLM_JOIN(v0_1, SLM_FORMATS, SLM_KERNEL_SETS)
#endif

// SLM_IMPLEMENTATION selects the source that compiles the functions of slm. Undefined or 1: this source compiles them.
// Every other source of the program may define it as 0 before its first header of slm,
//
//  #define SLM_IMPLEMENTATION 0
//
// and then has declarations only. Two sources that define it as 1 do not link. The CMake target slm::compiled is a
// source that compiles the functions.
#if !defined(SLM_IMPLEMENTATION)
#define SLM_COMPILES 1
#elif 0 - SLM_IMPLEMENTATION - 1 != -1  // it is 1 or empty
#define SLM_COMPILES 1
namespace slm { inline namespace v0_1 { namespace detail {
void two_sources_of_this_program_define_SLM_IMPLEMENTATION_1() {}
}}}
#else
#define SLM_COMPILES 0
#endif

/// SLM_INLINE: an inline function that is emitted even if this source does not call it, since other sources may.
/// SLM_TEMPLATE: an explicit instantiation of a template, for the same reason.
#if SLM_COMPILES
#define SLM_INLINE inline __attribute__((used))
#define SLM_TEMPLATE template
#else
#define SLM_INLINE inline
#define SLM_TEMPLATE extern template
#endif

/// SLM_CONSTRUCTOR: SLM_INLINE of constructors and destructors. Of an inline one, Clang emits only the form that
/// derived classes call, and a source that constructs the class itself does not link. Of a weak one it emits both
/// forms.
#if SLM_COMPILES && defined(__clang__)
#define SLM_CONSTRUCTOR __attribute__((weak))
#else
#define SLM_CONSTRUCTOR SLM_INLINE
#endif

/// Marks a header that declares such functions. If no source compiles them, linking fails and the linker names this
/// function.
#if SLM_COMPILES
#define SLM_HAS_FUNCTIONS(header) \
  SLM_INLINE void one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0() {}
#elif defined(__HIP_DEVICE_COMPILE__)  // the device's code would need the host's function
#define SLM_HAS_FUNCTIONS(header)
#else
#define SLM_HAS_FUNCTIONS(header)                                         \
  void one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0(); \
  [[gnu::used]] static void (*const needs_##header)() = one_source_must_include_##header##_without_SLM_IMPLEMENTATION_0;
#endif
