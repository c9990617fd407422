// AdapterEntry: one version of an adapter of a store, on disk or in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <system_error>

#include "slm/core/error.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct AdapterLeaseState;

/// Where an adapter is in memory.
struct AdapterCopies {
  AdapterRef on_host = nullptr, on_device = nullptr;
};

/// What a name stands for from when it is found or loaded until it is unloaded or replaced. The cache's mutex guards
/// what is not constant.
struct AdapterEntry {
  enum class State { absent, queued, loading, ready, failed };  // ready: in the highest tier

  const std::string name;
  const std::filesystem::path folder;
  const std::filesystem::path root;  // the folder that its files must lie in; empty: any
  const bool found;                  // as a sub-folder of the store's folder
  const bool replaces;               // it may take a name that another has
  const std::uint64_t disk_bytes;    // of its weights when the entry was made

  State state = State::absent;
  bool named = false;       // a name stands for it
  bool publishes = false;   // it takes its name when it is ready
  bool served = true;       // the disk's budget has room for it
  bool pinned = false;      // it is not evicted
  bool pressed = false;     // it is loaded before others, and may evict adapters that are leased but not in use
  bool lacks_room = false;  // it is queued, and the adapters that it could evict are in use
  bool has_news = false;    // those who have a lease of it are to be notified

  AdapterCopies copies = {};
  std::size_t host_bytes = 0, device_bytes = 0;  // that it takes of the budgets, from when its loading begins
  bool resident = false;                         // in the list of those in memory
  std::list<std::shared_ptr<AdapterEntry>>::iterator at = {};  // in that list

  std::set<AdapterLeaseState*> leases = {};
  std::weak_ptr<const Adapter> in_use = {};  // the handle that its users share
  int uses = 0;                              // such handles that are not known to be gone
  std::exception_ptr failure = nullptr;
  double retry_from = 0;  // the time from when a failed one is loaded again
};

using EntryRef = std::shared_ptr<AdapterEntry>;

/// The size of the folder's weights in bytes; 0 if it is unknown. The reader of the file reports the error.
inline std::uint64_t weights_bytes(const std::filesystem::path& folder) {
  std::error_code fault;
  const auto bytes = std::filesystem::file_size(folder / "adapter_model.safetensors", fault);
  return fault ? 0 : bytes;
}

/// Throws adapter.outside where a file of the adapter lies outside of its root, by a symbolic link or "..".
inline void check_inside(const AdapterEntry& entry) {
  namespace fs = std::filesystem;
  if (entry.root.empty()) return;
  std::error_code fault;
  for (const char* file : {"", "adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path place = *file == '\0' ? entry.folder : entry.folder / file;
    if (entry.found && !fs::is_symlink(fs::symlink_status(place, fault))) continue;
    const auto canonical = fs::canonical(place, fault);
    if (fault && fault != std::errc::not_enough_memory) continue;  // its reader reports the error
    const auto relative = canonical.lexically_relative(fs::canonical(entry.root, fault));
    if (!relative.empty() && *relative.begin() != "..") continue;
    throw Error("adapter.outside",
                text("the adapter ", quote(entry.name), " lies outside of the folder of adapters (",
                     *file == '\0' ? "its folder" : file, ")"),
                "Copy it there instead of linking it");
  }
}

}}}
