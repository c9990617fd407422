// Fibers: stacks that alternate on one thread. They run a block's threads when a kernel is emulated.
//
// AddressSanitizer is notified of every switch. A fiber that does not end is abandoned: objects on its stack are not
// destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/memory.hpp"
#include "slm/core/os/stack_switch.hpp"

#ifdef SLM_FIBER_ASAN
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
extern "C" void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
#endif
#ifdef SLM_FIBER_TSAN
extern "C" void* __tsan_get_current_fiber();
extern "C" void* __tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void* fiber);
extern "C" void __tsan_switch_to_fiber(void* fiber, unsigned flags);
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace slm { inline namespace v0_1 { namespace gpu {

/// Annotations for ThreadSanitizer, which treats every fiber as a thread: orderings, and accesses to ignore. Empty
/// without it.
struct RaceCheck {
  static void release([[maybe_unused]] void* address) {
#ifdef SLM_FIBER_TSAN
    __tsan_release(address);
#endif
  }
  static void acquire([[maybe_unused]] void* address) {
#ifdef SLM_FIBER_TSAN
    __tsan_acquire(address);
#endif
  }
  /// Accesses are ignored while it lives.
  struct Ignored {
    Ignored() {
#ifdef SLM_FIBER_TSAN
      AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
      AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    ~Ignored() {
#ifdef SLM_FIBER_TSAN
      AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
      AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
    Ignored(const Ignored&) = delete;
  };
};

/// A set of fibers that run one function, each with its index. Not thread-safe.
class Fibers {
 public:
  static constexpr std::size_t stack_bytes = 256 * 1024;
  /// Bytes from one stack to the next: a power of two plus an odd number of cache lines. The tops of all stacks would
  /// share one set of each cache at a power of two.
  static constexpr std::size_t stack_stride = stack_bytes + 17 * 64;

  Fibers() = default;
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers() { drop(); }

  /// Prepares `count` fibers to run body(context, index). A fiber whose body has returned is not resumed.
  SLM_NO_RACE_CHECK void start(int count, void (*body)(void* context, int index), void* context) {
    reserve(static_cast<std::size_t>(count));
    body_ = body;
    context_ = context;
    for (int i = 0; i < count; ++i) prepare(i);
    RaceCheck::release(this);  // makes earlier writes visible to every fiber
  }

  /// Call from outside after all bodies have returned: makes their writes visible.
  void joined() { RaceCheck::acquire(this); }

  /// Call from outside: runs fiber `index` until it calls yield().
  SLM_NO_RACE_CHECK void resume(int index) {
    running_ = index;
    Fiber& fiber = array_[index];
    enter(fiber, outside_, stack_of(index), stack_bytes);
  }

  /// Call from a fiber: switches back to the caller of resume().
  SLM_NO_RACE_CHECK void yield() { enter(outside_, array_[running_], outside_bottom_, outside_size_); }

 private:
  struct Fiber {
    slm::detail::StackContext context;
    void* fake_stack = nullptr;
    void* thread = nullptr;  // of ThreadSanitizer
  };

  std::byte* stack_of(int index) const { return stacks_ + static_cast<std::size_t>(index) * stack_stride; }

  /// Unpoisons abandoned stack frames, for the next fiber on the stack and the next owner of the address.
  static void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef SLM_FIBER_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
  }

  void drop() {
    if (stacks_ == nullptr) return;
    unpoison(stacks_, capacity_ * stack_stride);
#ifdef SLM_FIBER_TSAN
    for (Fiber& fiber : fibers_) {
      if (fiber.thread != nullptr) __tsan_destroy_fiber(fiber.thread);
    }
#endif
    slm::detail::free_pages(stacks_, capacity_ * stack_stride);
    stacks_ = nullptr;
    capacity_ = 0;
  }

  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    drop();
    stacks_ = static_cast<std::byte*>(slm::detail::allocate_pages(count * stack_stride, false));
    capacity_ = stacks_ == nullptr ? 0 : count;
    if (stacks_ == nullptr) {
      throw Error("gpu.out-of-memory", text("could not reserve ", count, " stacks of ", stack_bytes, " bytes"),
                  "Free memory, or raise the process's limit of address space");
    }
    fibers_.clear();
    fibers_.resize(count);
    array_ = fibers_.data();
  }

  SLM_NO_RACE_CHECK void prepare(int index) {
    Fiber& fiber = array_[index];
    fiber.fake_stack = nullptr;
#ifdef SLM_FIBER_TSAN
    if (fiber.thread != nullptr) __tsan_destroy_fiber(fiber.thread);  // its calls never returned
    fiber.thread = __tsan_create_fiber(0);
#endif
    unpoison(stack_of(index), stack_bytes);
    fiber.context.prepare(stack_of(index), stack_bytes, &Fibers::first_entry);
  }

  SLM_NO_RACE_CHECK static void first_entry() {
    Fibers& self = *current();
    self.arrived(nullptr);
    RaceCheck::acquire(&self);
    self.body_(self.context_, self.running_);
    RaceCheck::release(&self);
    while (true) self.yield();  // body does not return, and a stack without a caller must not return either
  }

  SLM_NO_RACE_CHECK void enter(Fiber& to, Fiber& from, [[maybe_unused]] const void* bottom,
                               [[maybe_unused]] std::size_t size) {
    current() = this;
#ifdef SLM_FIBER_ASAN
    __sanitizer_start_switch_fiber(&from.fake_stack, bottom, size);
#endif
#ifdef SLM_FIBER_TSAN
    if (&from == &outside_) outside_.thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.thread, 1);  // 1: a switch does not order memory
#endif
    slm::detail::StackContext::change(from.context, to.context);
    arrived(from.fake_stack);
  }

  void arrived([[maybe_unused]] void* fake_stack) {
#ifdef SLM_FIBER_ASAN
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    const auto* const address = static_cast<const std::byte*>(bottom);
    if (address < stacks_ || address >= stacks_ + capacity_ * stack_stride) {  // switched from outside
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
  Fiber* array_ = nullptr;  // data of fibers_: ThreadSanitizer would check a call of operator[]
  Fiber outside_;
  int running_ = 0;
  void (*body_)(void*, int) = nullptr;
  void* context_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

}}}
