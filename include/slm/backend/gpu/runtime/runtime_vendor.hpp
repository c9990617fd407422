// VendorRuntime: one runtime for both vendors, since the CUDA and HIP interfaces differ mainly in their prefix. An Api
// lists the vendor's calls without the prefix (runtime_cuda.hpp, runtime_hip.hpp); VendorRuntime calls and checks them.
//
//  Api::name, prefix, vendor, advice     "cuda", "cuda", "NVIDIA", remedy if there is no device
//  Api::Status, success, out_of_memory, not_ready    the vendor's status codes
//  Api::no_device(status)                no driver, or no device
//  Api::no_code(status)                  the program has no code for this device
//  Api::architecture(properties)         "sm_90", "gfx90a"
//  Api::driver()                         the driver's version
//  Api::Launch(kernel, grid, block, arguments, stream, start), launch(start)     the launch and its function name
//  Api::dependent_launches()             whether the driver records dependent launches, see launch.hpp
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/runtime/probe.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/core/byte_size.hpp"
#include "slm/core/error.hpp"

/// The calls with equal names in both interfaces, as static members of an Api.
#define SLM_GPU_FORWARD_CALLS(vendor)                                \
  SLM_GPU_FORWARD(vendor, GetDeviceCount)                            \
  SLM_GPU_FORWARD(vendor, GetDeviceProperties)                       \
  SLM_GPU_FORWARD(vendor, GetDevice)                                 \
  SLM_GPU_FORWARD(vendor, SetDevice)                                 \
  SLM_GPU_FORWARD(vendor, GetLastError)                              \
  SLM_GPU_FORWARD(vendor, MemGetInfo)                                \
  SLM_GPU_FORWARD(vendor, Malloc)                                    \
  SLM_GPU_FORWARD(vendor, Free)                                      \
  SLM_GPU_FORWARD(vendor, MemcpyAsync)                               \
  SLM_GPU_FORWARD(vendor, MemsetAsync)                               \
  SLM_GPU_FORWARD(vendor, StreamCreateWithFlags)                     \
  SLM_GPU_FORWARD(vendor, StreamDestroy)                             \
  SLM_GPU_FORWARD(vendor, StreamSynchronize)                         \
  SLM_GPU_FORWARD(vendor, StreamQuery)                               \
  SLM_GPU_FORWARD(vendor, StreamWaitEvent)                           \
  SLM_GPU_FORWARD(vendor, StreamBeginCapture)                        \
  SLM_GPU_FORWARD(vendor, StreamEndCapture)                          \
  SLM_GPU_FORWARD(vendor, EventCreateWithFlags)                      \
  SLM_GPU_FORWARD(vendor, EventDestroy)                              \
  SLM_GPU_FORWARD(vendor, EventRecord)                               \
  SLM_GPU_FORWARD(vendor, EventSynchronize)                          \
  SLM_GPU_FORWARD(vendor, EventElapsedTime)                          \
  SLM_GPU_FORWARD(vendor, OccupancyMaxActiveBlocksPerMultiprocessor) \
  SLM_GPU_FORWARD(vendor, GraphDestroy)                              \
  SLM_GPU_FORWARD(vendor, GraphExecDestroy)                          \
  SLM_GPU_FORWARD(vendor, GraphLaunch)
#define SLM_GPU_FORWARD(vendor, function)          \
  template <class... Arguments>                    \
  static Status function(Arguments... arguments) { \
    return vendor##function(arguments...);         \
  }

/// Calls the vendor's function and throws gpu.failed, with its name, unless it succeeds.
#define SLM_GPU_CALL(function, ...) VendorRuntime::require(Api::function(__VA_ARGS__), #function)

namespace slm { inline namespace v0_1 { namespace gpu {

/// A handle to one device; copies share it. Public members: the operations of the concept Runtime (runtime.hpp).
template <class Api>
class VendorRuntime {
  using Status = typename Api::Status;

  /// Owns a vendor handle of a device.
  template <class Handle, auto destroy>
  class Owned {
   public:
    Owned(Handle handle, int device) : handle_(handle), device_(device) {}
    Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), device_(other.device_) {}
    Owned& operator=(Owned&& other) noexcept {
      std::swap(handle_, other.handle_);
      std::swap(device_, other.device_);
      return *this;
    }
    ~Owned() {
      if (handle_) static_cast<void>(destroy(handle_));
    }
    /// The vendor's handle; null after a move.
    Handle handle() const { return handle_; }
    int device() const { return device_; }

   private:
    Handle handle_;
    int device_;
  };
  static Status destroy_stream(typename Api::StreamHandle handle) { return Api::StreamDestroy(handle); }
  static Status destroy_event(typename Api::EventHandle handle) { return Api::EventDestroy(handle); }
  static Status destroy_graph(typename Api::GraphHandle handle) { return Api::GraphExecDestroy(handle); }

 public:
  using Stream = Owned<typename Api::StreamHandle, destroy_stream>;
  using Event = Owned<typename Api::EventHandle, destroy_event>;
  using Graph = Owned<typename Api::GraphHandle, destroy_graph>;

  static constexpr const char* name = Api::name;

  /// The devices in the vendor's order; empty without a device or driver.
  static std::vector<DeviceInfo> devices() {
    int count = 0;
    const Status status = Api::GetDeviceCount(&count);
    if (Api::no_device(status)) {
      static_cast<void>(Api::GetLastError());
      return {};
    }
    require(status, "GetDeviceCount");
    std::vector<DeviceInfo> all;
    for (int index = 0; index < count; ++index) all.push_back(describe(index));
    return all;
  }

  /// index: into devices(). Runs a kernel of one block to check that the program has code for the device.
  /// dependent_launches: use dependent launches if device and driver support them.
  explicit VendorRuntime(int index = 0, bool dependent_launches = true) {
    const std::vector<DeviceInfo> all = devices();
    if (all.empty()) {
      throw Error("gpu.no-device", text("expected a ", Api::vendor, " device with a driver, found none"), Api::advice);
    }
    if (index < 0 || index >= static_cast<int>(all.size())) {
      std::string names;
      for (std::size_t i = 0; i < all.size(); ++i) names += text(i ? ", " : "", i, " (", all[i].name, ")");
      throw Error("gpu.no-device", text("device ", index, " was requested, but this machine has ", names),
                  "Choose one of these");
    }
    const auto device = std::make_shared<Device>(Device{index, all[static_cast<std::size_t>(index)]});
    device_ = device;
    const bool code_waits = probe();
    device->dependent = dependent_launches && code_waits && Api::dependent_launches();
  }

  const DeviceInfo& info() const { return device_->info; }
  int index() const { return device_->index; }
  /// For other libraries: makes this device the thread's current one while the returned object lives.
  auto current() const { return Current(index()); }

  /// Bytes that one program could allocate now.
  std::size_t memory_free() const {
    const Current current(index());
    std::size_t free = 0, total = 0;
    SLM_GPU_CALL(MemGetInfo, &free, &total);
    return free;
  }

  void* allocate(std::size_t bytes) {
    const Current current(index());
    void* pointer = nullptr;
    check_memory(Api::Malloc(&pointer, std::max<std::size_t>(bytes, 1)), bytes, "Malloc");
    return pointer;
  }
  void release(void* pointer) noexcept {
    if (pointer) static_cast<void>(Api::Free(pointer));
  }

  void* allocate_host(std::size_t bytes) {
    const Current current(index());
    void* pointer = nullptr;
    check_memory(Api::HostMalloc(&pointer, std::max<std::size_t>(bytes, 1)), bytes, Api::host_malloc);
    return pointer;
  }
  void release_host(void* pointer) noexcept {
    if (pointer) static_cast<void>(Api::HostFree(pointer));
  }

  Stream make_stream() {
    const Current current(index());
    typename Api::StreamHandle handle{};
    SLM_GPU_CALL(StreamCreateWithFlags, &handle, Api::stream_flags);
    return {handle, index()};
  }
  Event make_event() {
    const Current current(index());
    typename Api::EventHandle handle{};
    SLM_GPU_CALL(EventCreateWithFlags, &handle, Api::event_flags);
    return {handle, index()};
  }

  void copy_in(void* to, const void* from, std::size_t bytes, Stream& stream) {
    transfer(to, from, bytes, Api::host_to_device, stream);
  }
  void copy_out(void* to, const void* from, std::size_t bytes, Stream& stream) {
    transfer(to, from, bytes, Api::device_to_host, stream);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
    transfer(to, from, bytes, Api::device_to_device, stream);
  }
  void fill(void* to, int value, std::size_t bytes, Stream& stream) {
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(MemsetAsync, to, value, bytes, stream.handle());
  }

  void record(Event& event, Stream& stream) {
    own(event, "event");
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(EventRecord, event.handle(), stream.handle());
  }
  void wait(Event& event, Stream& stream) {
    own(event, "event");
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(StreamWaitEvent, stream.handle(), event.handle(), 0u);
  }
  float milliseconds(Event& first, Event& last) {
    own(first, "event");
    const Current current(own(last, "event"));
    float between = 0;
    SLM_GPU_CALL(EventSynchronize, first.handle());
    SLM_GPU_CALL(EventSynchronize, last.handle());
    SLM_GPU_CALL(EventElapsedTime, &between, first.handle(), last.handle());
    return between;
  }

  void synchronize(Stream& stream) {
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(StreamSynchronize, stream.handle());
  }
  void synchronize(Event& event) {
    const Current current(own(event, "event"));
    SLM_GPU_CALL(EventSynchronize, event.handle());
  }
  bool idle(Stream& stream) {
    const Current current(own(stream, "stream"));
    const Status status = Api::StreamQuery(stream.handle());
    if (status != Api::not_ready) require(status, "StreamQuery");
    static_cast<void>(Api::GetLastError());  // a busy stream must not be reported as the next call's error
    return status == Api::success;
  }

  void begin_capture(Stream& stream) {
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(StreamBeginCapture, stream.handle(), Api::capture_mode);
  }

  /// Always ends the capture; throws if an operation could not be recorded.
  Graph end_capture(Stream& stream) {
    const Current current(own(stream, "stream"));
    typename Api::CapturedHandle captured{};
    SLM_GPU_CALL(StreamEndCapture, stream.handle(), &captured);
    typename Api::GraphHandle handle{};
    const Status status = Api::GraphInstantiate(&handle, captured);
    static_cast<void>(Api::GraphDestroy(captured));
    require(status, "GraphInstantiate");
    return {handle, index()};
  }

  void replay(const Graph& graph, Stream& stream) {
    own(graph, "graph");
    const Current current(own(stream, "stream"));
    SLM_GPU_CALL(GraphLaunch, graph.handle(), stream.handle());
  }

  template <Kernel K>
  int resident_blocks() const {
    if (!info().cooperative) return 0;
    const Current current(index());
    int blocks = 0;
    SLM_GPU_CALL(OccupancyMaxActiveBlocksPerMultiprocessor, &blocks, reinterpret_cast<const void*>(&entry<K>),
                 K::max_block, std::size_t{0});
    return blocks * info().multiprocessors;
  }

  template <Kernel K>
  void launch(const typename K::Args& args, Stream& stream) {
    const Grid grid = K::grid(args, info().wave_width);
    const Start start = is_cooperative<K> ? Start::together : device_->dependent ? Start::dependent : Start::in_turn;
    const Current current(own(stream, "stream"));
    void* arguments[] = {const_cast<typename K::Args*>(&args)};
    const auto extent = [](int value) { return static_cast<unsigned>(value); };
    const Status status = Api::Launch(
        reinterpret_cast<const void*>(&entry<K>), typename Api::Extents(extent(grid.x), extent(grid.y), extent(grid.z)),
        typename Api::Extents(extent(grid.threads), 1, 1), arguments, stream.handle(), start);
    if (status == Api::success) return;
    static_cast<void>(Api::GetLastError());
    if (Api::no_code(status)) throw_wrong_device(text(Api::GetErrorName(status)));
    throw Error("gpu.launch",
                text("a kernel of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks of ", grid.threads,
                     " threads failed to launch: ", Api::prefix, Api::launch(start), " failed with ",
                     Api::GetErrorName(status), " (", static_cast<int>(status), "): ", Api::GetErrorString(status)),
                "Report it with the name of the device and the model");
  }

  /// Throws gpu.failed unless `status` is success. function: the vendor's function without its prefix.
  static void require(Status status, const char* function) {
    if (status == Api::success) [[likely]] {
      return;
    }
    static_cast<void>(Api::GetLastError());  // keeps the next call from reporting this error again
    throw Error("gpu.failed",
                text(Api::prefix, function, " failed with ", Api::GetErrorName(status), " (", static_cast<int>(status),
                     "): ", Api::GetErrorString(status)),
                "If it happens again, restart the program; device faults persist until then");
  }

 private:
  struct Device {
    int index;
    DeviceInfo info;
    bool dependent = false;  // use dependent launches
  };

  /// Makes a device the thread's current one, and restores the previous one at the end.
  class Current {
   public:
    explicit Current(int device) {
      SLM_GPU_CALL(GetDevice, &before_);
      if (before_ == device) {
        before_ = -1;
      } else {
        SLM_GPU_CALL(SetDevice, device);
      }
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      if (before_ >= 0) static_cast<void>(Api::SetDevice(before_));
    }

   private:
    int before_ = -1;
  };

  static DeviceInfo describe(int index) {
    typename Api::Properties properties{};
    SLM_GPU_CALL(GetDeviceProperties, &properties, index);
    return {.name = properties.name,
            .architecture = Api::architecture(properties),
            .driver = Api::driver(),
            .wave_width = properties.warpSize,
            .multiprocessors = properties.multiProcessorCount,
            .shared_bytes = properties.sharedMemPerBlock,
            .memory_bytes = properties.totalGlobalMem,
            .cooperative = properties.cooperativeLaunch != 0};
  }

  /// Returns the index of this device if `object` belongs to it; otherwise throws.
  template <class Object>
  int own(const Object& object, const char* what) const {
    if (object.device() != index()) {
      throw Error("gpu.other-device",
                  text("this ", what, " belongs to device ", object.device(), ", but is used with device ", index()),
                  "Make streams, events and graphs with the backend that uses them");
    }
    if (!object.handle()) {
      throw Error("gpu.failed", text("this ", what, " was moved from"), "Use the object that it was moved to");
    }
    return index();
  }

  void transfer(void* to, const void* from, std::size_t bytes, typename Api::Direction direction, Stream& stream) {
    const Current current(own(stream, "stream"));
    if (bytes) SLM_GPU_CALL(MemcpyAsync, to, from, bytes, direction, stream.handle());
  }

  void check_memory(Status status, std::size_t bytes, const char* function) const {
    if (status != Api::out_of_memory) return require(status, function);
    static_cast<void>(Api::GetLastError());
    std::size_t free = 0, total = 0;
    SLM_GPU_CALL(MemGetInfo, &free, &total);
    throw Error(
        "gpu.out-of-memory",
        text(Api::prefix, function, " requested ", text_of_bytes(bytes), ", and ", text_of_bytes(free), " of ",
             text_of_bytes(total), " are free on ", info().name),
        "Free memory on the device, lower the context (LoadOptions::context, --context), or use int4 weights or a "
        "smaller model");
  }

  [[noreturn]] void throw_wrong_device(const std::string& reason) const {
    throw Error("gpu.wrong-device",
                text("this program was not compiled for device ", index(), ", ", info().name, " (", info().architecture,
                     ", waves of ", info().wave_width, "): ", reason),
                text("Compile it with ", Api::architecture_option, " naming ", info().architecture));
  }

  /// Checks the device code, and whether it supports dependent launches.
  bool probe() {
    using Found = detail::ProbeKernel::Found;
    Stream stream = make_stream();
    const auto give_back = [this](Found* pointer) { release(pointer); };
    const std::unique_ptr<Found, decltype(give_back)> there(static_cast<Found*>(allocate(sizeof(Found))), give_back);
    Found found{};
    fill(there.get(), 0, sizeof found, stream);
    launch<detail::ProbeKernel>({there.get()}, stream);
    copy_out(&found, there.get(), sizeof found, stream);
    const Status status = Api::StreamSynchronize(stream.handle());
    if (Api::no_code(status)) throw_wrong_device(text(Api::GetErrorName(status)));
    require(status, "StreamSynchronize");
    if (found.width != info().wave_width) throw_wrong_device(text("its code is for waves of ", found.width));
    return found.dependent != 0;
  }

  std::shared_ptr<const Device> device_;
};

}}}

#undef SLM_GPU_CALL
