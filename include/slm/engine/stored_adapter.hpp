// StoredAdapter: an adapter of a store, wherever it is: on disk, read, on its way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// 0 where that cannot be told: whoever reads the file says what is wrong.
inline std::uint64_t weights_bytes(const std::filesystem::path& folder) {
  std::error_code fault;
  const auto bytes = std::filesystem::file_size(folder / "adapter_model.safetensors", fault);
  return fault ? 0 : bytes;
}

struct StoredAdapter;
struct AdapterWish;

/// Where a floor holds an adapter.
struct FloorPlace {
  bool held = false;
  std::size_t bytes = 0;
  std::list<std::shared_ptr<StoredAdapter>>::iterator at = {};
};

/// One generation of an adapter: what a name means from when it is found, or loaded anew, until it is unloaded or means
/// another.
struct StoredAdapter {
  enum class Stage { away, queued, loading, there, failed };

  /// root: a folder that its files must not lie outside of; empty: any. scanned: it was found there.
  StoredAdapter(std::string its_name, std::filesystem::path its_folder, std::filesystem::path its_root,
                bool was_scanned)
      : name(std::move(its_name)),
        folder(std::move(its_folder)),
        root(std::move(its_root)),
        scanned(was_scanned),
        disk_bytes(weights_bytes(folder)) {}

  const std::string name;
  const std::filesystem::path folder, root;
  const bool scanned;
  const std::uint64_t disk_bytes;  // of its weights when it was found

  bool served = true;       // of the index: there was budget for it
  bool replaces = false;    // it may take over a name
  bool to_publish = false;  // its name means it once it is there

  // Of the store; its mutex guards them.
  std::atomic<Stage> stage{Stage::away};  // only the store's threads change it
  std::atomic<bool> lacks_room{false};    // it is queued, and what it could take the place of is in use
  bool pressed = false;                   // it may take the place of what others wish for
  bool pinned = false;                    // it stays
  AdapterRef adapter = nullptr;           // on the host's floor
  AdapterRef placed = nullptr;            // on the device's
  FloorPlace host = {}, device = {};
  std::weak_ptr<const Adapter> lease = {};  // what those who use it share ...
  int leases = 0;                           // ... and how many of such are not given back
  std::set<AdapterWish*> wishes = {};
  std::exception_ptr failure = nullptr;
  double forget_failure = 0;  // from this time on

  bool in_use() const { return leases > 0; }
};

using StoredRef = std::shared_ptr<StoredAdapter>;

/// Throws adapter.outside where a file of an adapter lies outside of its root, by a symbolic link or "..".
inline void check_inside(const StoredAdapter& one) {
  namespace fs = std::filesystem;
  if (one.root.empty()) return;
  std::error_code fault;
  const auto is_link = [&](const fs::path& place) { return fs::is_symlink(fs::symlink_status(place, fault)); };
  for (const char* file : {"", "adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path place = *file == '\0' ? one.folder : one.folder / file;
    if (one.scanned && !is_link(place)) continue;
    const auto canonical = fs::canonical(place, fault);
    if (fault) continue;  // whoever reads it says what is wrong
    const auto relative = canonical.lexically_relative(fs::canonical(one.root, fault));
    if (!relative.empty() && *relative.begin() != "..") continue;
    throw Error("adapter.outside",
                text("the adapter ", quote(one.name), " lies outside of the folder of adapters (",
                     *file == '\0' ? "its folder" : file, ")"),
                "Copy it there instead of linking it");
  }
}

}}}
