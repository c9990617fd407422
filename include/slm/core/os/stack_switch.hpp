// StackContext: a function call on its own stack that a thread can leave and resume.
#pragma once

#include <cstddef>

#include "slm/core/macros.hpp"

#if defined(_WIN32)
// Declared here because <windows.h> defines macros with common names.
extern "C" {
__declspec(dllimport) void* __stdcall CreateFiber(unsigned long long, void(__stdcall*)(void*), void*);
__declspec(dllimport) void __stdcall DeleteFiber(void*);
__declspec(dllimport) void __stdcall SwitchToFiber(void*);
__declspec(dllimport) void* __stdcall ConvertThreadToFiber(void*);
__declspec(dllimport) int __stdcall IsThreadAFiber();
}
#elif !SLM_ARCH_X86_64
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SLM_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define SLM_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLM_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SLM_FIBER_TSAN 1
#endif
#endif
#ifdef SLM_FIBER_TSAN
#define SLM_NO_RACE_CHECK __attribute__((no_sanitize("thread")))
#else
#define SLM_NO_RACE_CHECK
#endif

namespace slm { inline namespace v0_1 { namespace detail {

#if defined(_WIN32)

/// Windows allocates the stacks itself.
class StackContext {
 public:
  StackContext() = default;
  StackContext(StackContext&& other) noexcept : fiber_(other.fiber_), owned_(other.owned_) { other.owned_ = false; }
  StackContext& operator=(const StackContext&) = delete;
  ~StackContext() { drop(); }

  /// The next switch to it calls entry(), which must not return, on a stack of these bytes.
  void prepare(std::byte*, std::size_t bytes, void (*entry)()) {
    drop();
    fiber_ = CreateFiber(bytes, &StackContext::begin, reinterpret_cast<void*>(entry));
    owned_ = fiber_ != nullptr;
  }

  /// Leaves `from`, the running context, until something switches back to it.
  static void change(StackContext& from, StackContext& to) {
    if (!from.owned_) from.fiber_ = IsThreadAFiber() != 0 ? current() : ConvertThreadToFiber(nullptr);
    SwitchToFiber(to.fiber_);
  }

 private:
  static void __stdcall begin(void* entry) { reinterpret_cast<void (*)()>(entry)(); }
  /// The running fiber, which Windows has at this place of the thread's block.
  static void* current() {
    void* fiber = nullptr;
    asm volatile("movq %%gs:0x20, %0" : "=r"(fiber));
    return fiber;
  }
  void drop() {
    if (owned_) DeleteFiber(fiber_);
    owned_ = false;
  }

  void* fiber_ = nullptr;
  bool owned_ = false;
};

#elif SLM_ARCH_X86_64

/// Saves callee-saved registers and the stack pointer to *from, then continues at `to`.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from*/, void* /*to*/) {
  asm volatile(
      "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
}

/// A switch is eight lines of assembly, ten times faster than ucontext.
class StackContext {
 public:
  /// The next switch to it calls entry(), which must not return, on this stack.
  SLM_NO_RACE_CHECK void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
    // switch_stack pops six registers and a return address. At function entry the stack pointer is 8 bytes off a
    // multiple of 16.
    auto** const words = reinterpret_cast<void**>(stack + bytes - 64);
    for (int i = 0; i < 8; ++i) words[i] = nullptr;
    words[6] = reinterpret_cast<void*>(entry);
    stack_pointer_ = words;
  }

  /// Leaves `from`, the running context, until something switches back to it.
  SLM_NO_RACE_CHECK static void change(StackContext& from, StackContext& to) {
    switch_stack(&from.stack_pointer_, to.stack_pointer_);
  }

 private:
  void* stack_pointer_ = nullptr;
};

#else

class StackContext {
 public:
  /// The next switch to it calls entry(), which must not return, on this stack.
  SLM_NO_RACE_CHECK void prepare(std::byte* stack, std::size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  /// Leaves `from`, the running context, until something switches back to it.
  SLM_NO_RACE_CHECK static void change(StackContext& from, StackContext& to) {
    swapcontext(&from.context_, &to.context_);
  }

 private:
  ucontext_t context_;
};

#endif

}}}
