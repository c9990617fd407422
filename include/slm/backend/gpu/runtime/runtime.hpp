// Runtime: the concept of a vendor's runtime: memory, streams, events, graphs, launches and device information.
//
// A runtime object is a handle to one device; copies share it. Every call checks its status and throws Error:
//  gpu.no-device            no device, no driver, or an invalid index
//  gpu.wrong-device         this build has no code for the device's architecture or wave width
//  gpu.out-of-memory        states the requested and the free memory
//  gpu.launch               a launch failed; states the kernel's grid
//  gpu.failed               any other failure, with the vendor's message
// Streams order work. Only synchronize() waits for the device, for all of a stream or up to an event; idle() polls.
// Between begin_capture and end_capture a stream records copies, fills and launches instead of running them; replay()
// runs the recording with the same pointers. Objects of two devices do not mix: streams, events and graphs of another
// device throw gpu.other-device.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "slm/backend/gpu/runtime/launch.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90", "gfx90a", "lanes32"
  std::string driver;        // version string of the vendor
  int wave_width = 0;        // threads per warp or wavefront
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;  // maximum shared memory per block
  std::size_t memory_bytes = 0;  // total memory; memory_free() returns the free part
  bool cooperative = false;      // supports cooperative launches
};

namespace detail {
/// An empty kernel, for the concept.
struct EmptyKernel {
  struct Args {};
  struct Shared {};
  static constexpr int max_block = 32;
  static Grid grid(const Args&, int) { return {}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane, const Args&, Shared&) const {}
};
}  // namespace detail

/// Stream, Event and Graph are movable and own their resources. The default stream is not used.
template <class R>
concept Runtime = std::copyable<R> && requires(R runtime, const R& constant, int index, void* to, const void* from,
                                               std::size_t bytes, typename R::Stream& stream, typename R::Event& event,
                                               const typename R::Graph& graph, const detail::EmptyKernel::Args& args) {
  { R::name } -> std::convertible_to<std::string>;            // "cuda", "hip", "lanes32"
  { R::devices() } -> std::same_as<std::vector<DeviceInfo>>;  // empty without a driver; does not throw in that case
  R(index);                                                   // index: into devices()
  { constant.info() } -> std::same_as<const DeviceInfo&>;
  { constant.memory_free() } -> std::same_as<std::size_t>;
  { runtime.allocate(bytes) } -> std::same_as<void*>;       // device memory, 256-byte aligned, not initialised
  runtime.release(to);                                      // noexcept
  { runtime.allocate_host(bytes) } -> std::same_as<void*>;  // pinned host memory for asynchronous copies
  runtime.release_host(to);                                 // noexcept
  { runtime.make_stream() } -> std::same_as<typename R::Stream>;
  { runtime.make_event() } -> std::same_as<typename R::Event>;
  runtime.copy_in(to, from, bytes, stream);   // host to device
  runtime.copy_out(to, from, bytes, stream);  // device to host
  runtime.copy(to, from, bytes, stream);      // device to device
  runtime.fill(to, index, bytes, stream);     // sets every byte
  runtime.record(event, stream);
  runtime.wait(event, stream);                                    // later work on the stream waits for the event
  { runtime.milliseconds(event, event) } -> std::same_as<float>;  // between two recorded events; waits for both
  runtime.synchronize(stream);
  runtime.synchronize(event);                      // returns at once if it was never recorded
  { runtime.idle(stream) } -> std::same_as<bool>;  // whether all submitted work has finished
  runtime.begin_capture(stream);
  { runtime.end_capture(stream) } -> std::same_as<typename R::Graph>;  // instantiated
  runtime.replay(graph, stream);
  runtime.template launch<detail::EmptyKernel>(args, stream);  // grid and block from Kernel::grid(args, wave width)
  // Number of blocks of max_block threads that are resident at once; 0: the kernel does not fit.
  { constant.template resident_blocks<detail::EmptyKernel>() } -> std::same_as<int>;
};

}}}
