// Adapters of arbitrary bytes, for tests of their storage.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>

#include "slm/engine/adapter_store.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// Folders with arbitrary bytes as weights, and a model that reads them: an adapter has the size of its file, and its
/// digest identifies its contents. It counts the adapters in memory.
class ToyAdapters {
 public:
  explicit ToyAdapters(std::size_t header = 0) {
    model_.info().read_adapter = [state = state_, header](const std::filesystem::path& folder) -> AdapterRef {
      const std::lock_guard lock(state->gate);
      ++state->reads;
      std::ifstream file(folder / "adapter_model.safetensors", std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (text.empty()) {
        throw Error("adapter.missing-tensor", slm::text(quote(folder.filename().string()), " is empty"), "Copy it");
      }
      const std::size_t bytes = text.size() - header;
      state->most = std::max<std::size_t>(state->most, state->bytes += bytes);
      return {new Adapter{.name = folder.filename().string(),
                          .digest = mix(bytes * 256 + static_cast<unsigned char>(text.front())),
                          .bytes = bytes},
              [state](const Adapter* adapter) {
                state->bytes -= adapter->bytes;
                delete adapter;
              }};
    };
  }

  const ToyModel& model() const { return model_; }
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path write(const std::string& name, std::size_t bytes, char fill = 'x') const {
    std::filesystem::create_directories(path() / name);
    std::ofstream(path() / name / "adapter_model.safetensors", std::ios::binary) << std::string(bytes, fill);
    return path() / name;
  }
  /// a, b, c, ..., of 100 bytes each
  void write_some(int count) const {
    for (int i = 0; i < count; ++i) write(std::string(1, static_cast<char>('a' + i)), 100);
  }
  AdapterStoreOptions options(std::size_t host_memory = 0) const {
    return {.folder = path(), .host_memory = host_memory};
  }

  std::size_t bytes() const { return state_->bytes; }  // in memory now
  std::size_t most() const { return state_->most; }
  int reads() const { return state_->reads; }
  std::mutex& gate() { return state_->gate; }  // holding it prevents the store from reading

 private:
  struct State {
    std::atomic<std::size_t> bytes = 0, most = 0;
    std::atomic<int> reads = 0;
    std::mutex gate;
  };

  TemporaryFolder folder_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  ToyModel model_{ToyOptions{}};
};

}  // namespace slm::testing
