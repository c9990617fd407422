// Executor: runs parallel loops on an application's threads, such as those of TBB or of a game's job system.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// An application derives from it, and passes it in backend::CpuOptions::executor. slm then starts no threads for that
/// device. Results have the same bits with any executor.
///
/// A thread that waits inside run() may run other work of the application, but not steps of models of the same device:
/// these would wait for the step that called run().
class Executor {
 public:
  /// One of the parts of a loop. The parts divide the work among themselves while they run: a part that starts late
  /// finds less of it or none. No part waits for another one, so one thread may run all parts.
  class Part {
   public:
    using Call = void (*)(void* loop, int index) noexcept;
    Part(Call call, void* loop) : call_(call), loop_(loop) {}

    void operator()(int index) const noexcept { call_(loop_, index); }

   private:
    Call call_;
    void* loop_;
  };

  virtual ~Executor() = default;

  /// How many parts may run at the same time, with those in the thread that calls run(): 1 to 1024. slm asks once.
  virtual int threads() const = 0;

  /// Calls part(index) once for each index in [0, parts), in any order and on any threads, also on that of the caller,
  /// and returns after all calls have ended. parts: 2 to threads(). If it throws, no part runs any more or starts
  /// later. Several devices may call it at the same time.
  virtual void run(int parts, Part part) = 0;

 protected:
  Executor() = default;
  Executor(const Executor&) = default;
  Executor& operator=(const Executor&) = default;
};

}}
