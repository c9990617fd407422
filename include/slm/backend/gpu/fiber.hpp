// Fibers: stacks that take turns on one thread. A block's threads run on them when a kernel is emulated.
//
// On x86-64 a switch is eight lines of assembly; elsewhere it is ucontext, ten times slower. AddressSanitizer is told
// of every switch. A fiber that is not run to its end is abandoned: nothing on its stack is destroyed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SLM_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLM_FIBER_ASAN 1
#endif
#endif
#ifdef SLM_FIBER_ASAN
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
extern "C" void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
#endif

namespace slm::gpu {

#if defined(__x86_64__)
/// Saves the callee's registers and stack pointer to *from and goes on at `to`.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from*/, void* /*to*/) {
  asm volatile(
      "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
}
#endif

/// A set of fibers that all run one function, each with its index. Not thread safe.
class Fibers {
 public:
  static constexpr std::size_t stack_bytes = 256 * 1024;

  Fibers() = default;
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers() { drop(); }

  /// Makes `count` fibers stand before body(context, index). A fiber whose body has returned is not resumed again.
  void start(int count, void (*body)(void* context, int index), void* context) {
    reserve(static_cast<std::size_t>(count));
    body_ = body;
    context_ = context;
    for (int i = 0; i < count; ++i) prepare(i);
  }

  /// From outside: runs fiber `index` until it calls yield().
  void resume(int index) {
    running_ = index;
    Fiber& fiber = fibers_[static_cast<std::size_t>(index)];
    enter(fiber, outside_, stack_of(index), stack_bytes);
  }

  /// From a fiber: back to who resumed it.
  void yield() { enter(outside_, fibers_[static_cast<std::size_t>(running_)], outside_bottom_, outside_size_); }

 private:
  struct Fiber {
#if defined(__x86_64__)
    void* stack_pointer = nullptr;
#else
    ucontext_t context;
#endif
    void* fake_stack = nullptr;
  };

  std::byte* stack_of(int index) const { return stacks_ + static_cast<std::size_t>(index) * stack_bytes; }

  /// Frames that were abandoned stay poisoned: for the next fiber on the stack, and for who gets the address next.
  static void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef SLM_FIBER_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
  }

  void drop() {
    if (stacks_ == nullptr) return;
    unpoison(stacks_, capacity_ * stack_bytes);
    munmap(stacks_, capacity_ * stack_bytes);
    stacks_ = nullptr;
    capacity_ = 0;
  }

  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    drop();
    void* const memory =
        mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stacks_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
    capacity_ = stacks_ == nullptr ? 0 : count;
    if (stacks_ == nullptr) {
      throw Error("gpu.out-of-memory", text("could not reserve ", count, " stacks of ", stack_bytes, " bytes"),
                  "Free memory, or raise the process's limit of address space");
    }
    fibers_.resize(count);
  }

  void prepare(int index) {
    Fiber& fiber = fibers_[static_cast<std::size_t>(index)];
    fiber.fake_stack = nullptr;
    std::byte* const top = stack_of(index) + stack_bytes;
    unpoison(stack_of(index), stack_bytes);
#if defined(__x86_64__)
    // What switch_stack pops: six registers and the address to return to. At a function's entry the stack pointer is
    // 8 off a multiple of 16.
    auto** const words = reinterpret_cast<void**>(top - 64);
    for (int i = 0; i < 8; ++i) words[i] = nullptr;
    words[6] = reinterpret_cast<void*>(&Fibers::first_entry);
    fiber.stack_pointer = words;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = top - stack_bytes;
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Fibers::first_entry, 0);
#endif
  }

  static void first_entry() {
    Fibers& self = *current();
    self.arrived(nullptr);
    self.body_(self.context_, self.running_);
    while (true) self.yield();  // body does not return; a stack without a caller must not either
  }

  void enter(Fiber& to, Fiber& from, [[maybe_unused]] const void* bottom, [[maybe_unused]] std::size_t size) {
    current() = this;
#ifdef SLM_FIBER_ASAN
    __sanitizer_start_switch_fiber(&from.fake_stack, bottom, size);
#endif
#if defined(__x86_64__)
    switch_stack(&from.stack_pointer, to.stack_pointer);
#else
    swapcontext(&from.context, &to.context);
#endif
    arrived(from.fake_stack);
  }

  void arrived([[maybe_unused]] void* fake_stack) {
#ifdef SLM_FIBER_ASAN
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    const auto* const address = static_cast<const std::byte*>(bottom);
    if (address < stacks_ || address >= stacks_ + capacity_ * stack_bytes) {  // we came from outside
      outside_bottom_ = bottom;
      outside_size_ = size;
    }
#endif
  }

  static Fibers*& current() {
    static thread_local Fibers* self = nullptr;
    return self;
  }

  std::byte* stacks_ = nullptr;
  std::size_t capacity_ = 0;
  std::vector<Fiber> fibers_;
  Fiber outside_;
  int running_ = 0;
  void (*body_)(void*, int) = nullptr;
  void* context_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

}  // namespace slm::gpu
