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

/// The CMake target slm::compiled defines SLM_COMPILED and holds what otherwise is compiled into each source; its own
/// sources define SLM_COMPILING. Headers that only those need are then not read elsewhere. Its functions are weak, as
/// its templates are anyway: a program may hold the libraries of two backends.
#if defined(SLM_COMPILED)
#if defined(SLM_COMPILING)
#define SLM_INLINE __attribute__((weak))
#define SLM_COMPILED_TEMPLATE template
#else
#define SLM_COMPILED_TEMPLATE extern template
#define SLM_DECLARATIONS_ONLY
#endif
#else
#define SLM_INLINE inline
#endif
