// FloatEnvironment: the floating-point mode that results depend on, independent of the host program's mode.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// While an object lives, its thread rounds to nearest, keeps subnormal numbers and masks floating-point exceptions.
/// The destructor restores the previous mode. Objects of one thread must be destroyed in reverse order.
class FloatEnvironment {
 public:
  FloatEnvironment() : before_(control()) {
    if (mode_of(before_) != standard) set(standard);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;
  ~FloatEnvironment() {
    if (mode_of(before_) != standard) set(before_);
  }

 private:
#if SLM_ARCH_X86_64
  using Word = unsigned;
  static constexpr Word standard = 0x1f80;
  static Word mode_of(Word control) { return control & ~Word{0x3f}; }  // without the status flags
  static Word control() { return __builtin_ia32_stmxcsr(); }
  static void set(Word control) {
    asm volatile("" ::: "memory");  // keeps arithmetic from moving across the change
    __builtin_ia32_ldmxcsr(control);
    asm volatile("" ::: "memory");
  }
#elif SLM_ARCH_AARCH64
  using Word = std::uint64_t;
  static constexpr Word standard = 0;
  static Word mode_of(Word control) { return control; }
  static Word control() {
    Word control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(Word control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#else
  using Word = int;
  static constexpr Word standard = 0;
  static Word mode_of(Word control) { return control; }
  static Word control() { return standard; }
  static void set(Word) {}
#endif

  Word before_;
};

}}}
