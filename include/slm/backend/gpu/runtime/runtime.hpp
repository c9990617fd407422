// What a vendor's runtime must give: memory, streams, events, graphs, launches, and what device there is.
//
// A runtime object is a handle to one device; copies share it. Every call checks the status it gets and throws Error:
//   gpu.no-device            no device, no driver, or an index that no device has
//   gpu.wrong-device         this build holds no code for the device's architecture, or for its wave width
//   gpu.out-of-memory        names what was asked for and what is free
//   gpu.launch               a launch was refused; names the kernel's grid
//   gpu.failed               anything else, with the vendor's own words
// Work is ordered by streams; nothing but synchronize() waits for the device, for all of a stream or up to an event;
// idle() asks without waiting.
// Between begin_capture and end_capture a stream records copies, fills and launches instead of running them; replay()
// runs what was recorded, with the same pointers. Objects of two devices do not mix: a stream, an event or a graph
// knows its device, and a foreign one throws gpu.other-device.
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
  std::string driver;        // version, as the vendor writes it
  int wave_width = 0;        // threads of a warp or wavefront
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;  // shared memory that a block may have
  std::size_t memory_bytes = 0;  // all there is; what is free is asked for by memory_free()
  bool cooperative = false;      // blocks of a kernel may wait for each other
};

namespace detail {
/// Does nothing; only there so that the concept can name a kernel.
struct EmptyKernel {
  struct Args {};
  struct Shared {};
  static constexpr int max_block = 32;
  static Grid grid(const Args&, int) { return {}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane, const Args&, Shared&) const {}
};
}  // namespace detail

/// Stream, Event and Graph are movable and release what they hold. The default stream does not exist here.
template <class R>
concept Runtime = std::copyable<R> && requires(R runtime, const R& constant, int index, void* to, const void* from,
                                               std::size_t bytes, typename R::Stream& stream, typename R::Event& event,
                                               const typename R::Graph& graph, const detail::EmptyKernel::Args& args) {
  { R::name } -> std::convertible_to<std::string>;            // "cuda", "hip", "lanes32"
  { R::devices() } -> std::same_as<std::vector<DeviceInfo>>;  // empty without a driver; does not throw for that
  R(index);                                                   // index: into devices()
  { constant.info() } -> std::same_as<const DeviceInfo&>;
  { constant.memory_free() } -> std::same_as<std::size_t>;
  { runtime.allocate(bytes) } -> std::same_as<void*>;       // device memory, 256-byte aligned, not initialised
  runtime.release(to);                                      // noexcept
  { runtime.allocate_host(bytes) } -> std::same_as<void*>;  // host memory that asynchronous copies may use
  runtime.release_host(to);                                 // noexcept
  { runtime.make_stream() } -> std::same_as<typename R::Stream>;
  { runtime.make_event() } -> std::same_as<typename R::Event>;
  runtime.copy_in(to, from, bytes, stream);   // host to device
  runtime.copy_out(to, from, bytes, stream);  // device to host
  runtime.copy(to, from, bytes, stream);      // device to device
  runtime.fill(to, index, bytes, stream);     // every byte
  runtime.record(event, stream);
  runtime.wait(event, stream);                                    // what follows on the stream waits for the event
  { runtime.milliseconds(event, event) } -> std::same_as<float>;  // between two recorded events, waits for both
  runtime.synchronize(stream);
  runtime.synchronize(event);                      // at once if it was never recorded
  { runtime.idle(stream) } -> std::same_as<bool>;  // whether all is done that was asked of it
  runtime.begin_capture(stream);
  { runtime.end_capture(stream) } -> std::same_as<typename R::Graph>;  // instantiated
  runtime.replay(graph, stream);
  runtime.template launch<detail::EmptyKernel>(args, stream);  // grid and block from Kernel::grid(args, wave width)
  // Blocks of max_block threads that the device holds at once; 0: it cannot start all of them together.
  { constant.template resident_blocks<detail::EmptyKernel>() } -> std::same_as<int>;
};

}}}
