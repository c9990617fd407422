// Instruction sets of backend::Cpu, and their detection at run time.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/os/processors.hpp"

#if defined(__x86_64__) && !defined(SLM_NO_AVX2)
#define SLM_CPU_X86 1
#include <cpuid.h>
#else
#define SLM_CPU_X86 0
#endif
#if SLM_CPU_X86 && !defined(SLM_NO_AVX512)
#define SLM_CPU_AVX512 1
#else
#define SLM_CPU_AVX512 0
#endif

// Whether one source can compile NEON kernels for newer processors than its target.
#if defined(__aarch64__) && !defined(__NVCC__) && (!defined(__clang__) || __clang_major__ >= 16)
#define SLM_CPU_NEON_SETS 1
#else
#define SLM_CPU_NEON_SETS 0
#endif

namespace slm { inline namespace v0_1 { namespace backend {

/// One binary has the kernels of every set and selects at run time. Within a set, results are bit-identical for any
/// number of threads and rows. Between sets the last bits differ, since sums use different numbers of lanes.
enum class Isa {
  automatic,  // the best set of this machine
  portable,   // 4 lanes of the compiler's vector extension: SSE2 on x86-64, NEON on AArch64
  avx2,       // 8 lanes: AVX2, FMA, F16C
  avx512,     // 16 lanes: AVX-512 F, BW, DQ, VL
  amx,        // AVX-512, and AMX-BF16 tiles for bfloat16 weights
};

constexpr std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::automatic: return "automatic";
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::amx: return "amx";
  }
  return "?";
}

#if SLM_CPU_X86
/// Half-precision conversions; clang's __builtin_cpu_supports lacks them.
inline bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

/// The processor has AMX-BF16 and the system grants its registers, which must be requested once.
inline bool has_amx() {
  static const bool granted = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & amx_bf16) == 0 || (edx & amx_tile) == 0) return false;
    return detail::request_amx_registers();
  }();
  return granted;
}
#endif

inline bool is_available(Isa isa) {
  switch (isa) {
    case Isa::automatic:
    case Isa::portable: return true;
#if SLM_CPU_X86
    case Isa::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx512:
      return SLM_CPU_AVX512 && is_available(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Isa::amx: return is_available(Isa::avx512) && has_amx();
#else
    default: return false;
#endif
  }
  return false;
}

/// Whether the set's kernels multiply pairs of bfloat16 on this machine: AMX tiles, or AVX512-BF16 dot products. isa:
/// as resolve() returns it.
inline bool has_bf16_products(Isa isa) {
#if SLM_CPU_X86
  return isa == Isa::amx || (isa == Isa::avx512 && __builtin_cpu_supports("avx512bf16"));
#else
  static_cast<void>(isa);
  return false;
#endif
}

/// Kinds of byte dot products, for quantized weights. Separate from Isa, since processors introduced them
/// independently.
enum class DotSet {
  portable,     // 16-bit arithmetic
  neon_dot,     // SDOT of ARMv8.2
  neon_i8mm,    // USDOT, which supports 8-bit codes directly
  avx2,         // VPMADDUBSW
  avx2_vnni,    // VPDPBUSD
  avx512_vnni,  // VPDPBUSD on 512 bits
  amx,          // AMX tiles
};

constexpr std::string_view name_of(DotSet set) {
  switch (set) {
    case DotSet::portable: return "portable";
    case DotSet::neon_dot: return "neon_dot";
    case DotSet::neon_i8mm: return "neon_i8mm";
    case DotSet::avx2: return "avx2";
    case DotSet::avx2_vnni: return "avx2_vnni";
    case DotSet::avx512_vnni: return "avx512_vnni";
    case DotSet::amx: return "amx";
  }
  return "?";
}

inline bool is_available(DotSet set) {
#if SLM_CPU_X86
  const auto features = [](unsigned subleaf) {
    struct Registers {
      unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    } found;
    __get_cpuid_count(7, subleaf, &found.eax, &found.ebx, &found.ecx, &found.edx);
    return found;
  };
  constexpr unsigned avx512_vnni = 1u << 11, avx_vnni = 1u << 4, amx_int8 = 1u << 25;  // bits of ecx, eax and edx
  switch (set) {
    case DotSet::portable: return true;
    case DotSet::avx2: return is_available(Isa::avx2);
    case DotSet::avx2_vnni: return is_available(Isa::avx2) && (features(1).eax & avx_vnni) != 0;
    case DotSet::avx512_vnni: return is_available(Isa::avx512) && (features(0).ecx & avx512_vnni) != 0;
    case DotSet::amx:
      return is_available(Isa::amx) && is_available(DotSet::avx512_vnni) && (features(0).edx & amx_int8) != 0;
    default: return false;
  }
#elif SLM_CPU_NEON_SETS
  if (set == DotSet::neon_dot) return detail::neon_features().dot;
  if (set == DotSet::neon_i8mm) return detail::neon_features().i8mm;
#endif
  return set == DotSet::portable;
}

/// The best kind for an instruction set on this machine.
inline DotSet dot_set(Isa isa) {
  const auto first_of = [](std::initializer_list<DotSet> sets) {
    for (const DotSet set : sets) {
      if (is_available(set)) return set;
    }
    return DotSet::portable;
  };
  switch (isa) {
    case Isa::amx: return first_of({DotSet::amx, DotSet::avx512_vnni, DotSet::avx2});
    case Isa::avx512: return first_of({DotSet::avx512_vnni, DotSet::avx2});
    case Isa::avx2: return first_of({DotSet::avx2_vnni, DotSet::avx2});
    default: return first_of({DotSet::neon_i8mm, DotSet::neon_dot});
  }
}

/// The sets of this machine, weakest first.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> available;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (is_available(isa)) available.push_back(isa);
  }
  return available;
}

/// Returns the requested set, or the best one for Isa::automatic. Throws backend.unsupported-instruction-set.
inline Isa resolve(Isa requested) {
  if (requested == Isa::automatic) return available_isas().back();
  if (!is_available(requested)) {
    throw Error("backend.unsupported-instruction-set",
                text("expected an instruction set of this processor, found '", name_of(requested), "'; its best is '",
                     name_of(available_isas().back()), "'"),
                "Use Isa::automatic");
  }
  return requested;
}

/// Hints to the processor that a loop waits for another thread.
inline void spin_hint() {
#if SLM_CPU_X86
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}}}
