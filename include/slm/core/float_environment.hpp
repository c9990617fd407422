// FloatEnvironment: the arithmetic that results are defined by, whatever mode the host program has set.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// While it lives, the calling thread rounds to nearest, keeps subnormal numbers and masks floating-point exceptions.
/// Its end restores what the thread had. A thread is to end the innermost one first.
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
  static Word mode_of(Word control) { return control & ~Word{0x3f}; }  // the rest says what has happened
  static Word control() { return __builtin_ia32_stmxcsr(); }
  static void set(Word control) {
    asm volatile("" ::: "memory");  // arithmetic stays on its side
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
