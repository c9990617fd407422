// AdapterEntry: one version of a store's adapter, on disk or in memory.
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
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct AdapterLeaseState;

/// The copies of an adapter in memory.
struct AdapterCopies {
  AdapterRef on_host = nullptr, on_device = nullptr;
};

/// An adapter from its discovery or loading until it is unloaded or replaced. The cache's mutex guards all mutable
/// members.
struct AdapterEntry {
  enum class State { absent, queued, loading, ready, failed };  // ready: in the highest tier

  const std::string name;
  const std::filesystem::path folder;
  const std::filesystem::path root;  // folder that must contain its files; empty: any
  const bool found;                  // discovered as a sub-folder of the store's folder
  const bool replaces;               // may replace an adapter of the same name
  const std::uint64_t disk_bytes;    // bytes of its weights when the entry was created

  State state = State::absent;
  bool named = false;         // a name refers to it
  bool publishes = false;     // takes its name when ready
  bool served = true;         // within the disk budget
  bool pinned = false;        // is not evicted
  bool pressed = false;       // is loaded before others, and may evict adapters that are leased but not in use
  bool lacks_memory = false;  // queued, and all adapters that it could evict are in use
  bool has_news = false;      // its leases must be notified

  AdapterCopies copies = {};
  std::size_t host_bytes = 0, device_bytes = 0;  // bytes counted in the budgets, from the beginning of loading
  bool resident = false;                         // is in the list of adapters in memory
  std::list<std::shared_ptr<AdapterEntry>>::iterator at = {};  // position in that list

  std::set<AdapterLeaseState*> leases = {};
  std::weak_ptr<const Adapter> in_use = {};  // the handle that its users share
  int uses = 0;                              // number of such handles not known to be released
  std::exception_ptr failure = nullptr;
  double retry_from = 0;  // earliest time of a retry after a failure
};

using EntryRef = std::shared_ptr<AdapterEntry>;

/// Bytes of the folder's weights; 0 if unknown. The reader of the file reports errors.
inline std::uint64_t weights_bytes(const std::filesystem::path& folder) {
  std::error_code fault;
  const auto bytes = std::filesystem::file_size(folder / "adapter_model.safetensors", fault);
  return fault ? 0 : bytes;
}

/// Throws adapter.outside if a file of the adapter is outside of its root, by a symbolic link or "..".
inline void check_inside(const AdapterEntry& entry) {
  namespace fs = std::filesystem;
  if (entry.root.empty()) return;
  std::error_code fault;
  for (const char* file : {"", "adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path place = *file == '\0' ? entry.folder : entry.folder / file;
    if (entry.found && !fs::is_symlink(fs::symlink_status(place, fault))) continue;
    const auto canonical = fs::canonical(place, fault);
    if (fault && fault != std::errc::not_enough_memory) continue;  // the file's reader reports the error
    const auto relative = canonical.lexically_relative(fs::canonical(entry.root, fault));
    if (!relative.empty() && *relative.begin() != "..") continue;
    throw Error("adapter.outside",
                text("the adapter ", quote(entry.name), " is outside of the folder of adapters (",
                     *file == '\0' ? "its folder" : file, ")"),
                "Copy it into the folder instead of linking it");
  }
}

}}}
