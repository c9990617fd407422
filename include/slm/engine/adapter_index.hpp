// AdapterIndex: which adapter a name means: the sub-folders of a folder, and what was loaded under a name besides.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/folder.hpp"
#include "slm/engine/stored_adapter.hpp"

namespace slm { inline namespace v0_1 {

/// Whether an adapter may be called so: 1 to 128 letters, digits, '.', '_' and '-', of which the first is a letter or a
/// digit.
inline bool is_adapter_name(std::string_view name) {
  const auto is_plain = [](char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
  };
  return !name.empty() && name.size() <= 128 && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char byte) { return is_plain(byte) || byte == '.' || byte == '_' || byte == '-'; });
}

namespace detail {

/// Any thread may use it. It reads no adapter.
class AdapterIndex {
 public:
  /// folder: empty for none. taken: what no adapter may be called. budget: bytes of the weights of all names together;
  /// 0: no limit. Throws adapter.no-folder.
  AdapterIndex(std::filesystem::path folder, std::vector<std::string> taken, std::uint64_t budget)
      : folder_(std::move(folder)), taken_(std::move(taken)), budget_(budget) {
    std::error_code fault;
    if (!folder_.empty() && !std::filesystem::is_directory(folder_, fault)) {
      throw Error("adapter.no-folder", text("'", folder_.string(), "' is no folder that can be read"),
                  "Name a folder whose sub-folders are adapters");
    }
    scan();
  }

  /// Throws adapter.unknown; adapter.name where another name differs by case only; adapter.no-room where there was no
  /// budget left for it.
  StoredRef find(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (all_.find(name) == all_.end()) scan();
    const auto found = all_.find(name);
    if (found == all_.end()) throw unknown(name);
    const StoredAdapter& one = *found->second;
    check_case(one, &one);
    if (one.served) return found->second;
    throw Error("adapter.no-room",
                text("the weights of ", quote(name), " have ", one.disk_bytes, " bytes, and others take ", used_,
                     " of ", budget_, " that are served from disk"),
                "Remove adapters, or raise AdapterStoreOptions::disk_memory");
  }

  /// In their order, whatever is wrong with their files.
  std::vector<std::pair<std::string, std::filesystem::path>> folders() {
    const std::lock_guard lock(mutex_);
    scan();
    std::vector<std::pair<std::string, std::filesystem::path>> folders;
    for (const auto& [name, one] : all_) folders.emplace_back(name, one->folder);
    return folders;
  }

  /// Throws adapter.name where the name is none or is taken, by the adapter's own name only unless it may replace that.
  void check(const StoredAdapter& one) {
    const std::lock_guard lock(mutex_);
    check_new(one);
  }
  /// From now on its name means this adapter. Returns what it meant before. Throws as check().
  StoredRef publish(const StoredRef& one) {
    const std::lock_guard lock(mutex_);
    check_new(*one);
    hidden_.erase(one->name);
    StoredRef before = erase(one->name);
    insert(one);
    return before;
  }
  /// From now on the name means nothing, whatever lies in the folder. Throws adapter.unknown.
  StoredRef remove(std::string_view name) {
    const std::lock_guard lock(mutex_);
    scan();
    StoredRef one = erase(name);
    if (one == nullptr) throw unknown(name);
    hidden_.insert(one->name);
    return one;
  }
  /// What names meant that the last scans did not find again.
  std::vector<StoredRef> take_gone() {
    const std::lock_guard lock(mutex_);
    return std::exchange(gone_, {});
  }

  const std::filesystem::path& folder() const { return folder_; }
  std::uint64_t budget() const { return budget_; }
  /// How many names there are, and the bytes of what they mean.
  std::pair<std::size_t, std::uint64_t> size() const {
    const std::lock_guard lock(mutex_);
    return {all_.size(), used_};
  }

 private:
  static Error unknown(std::string_view name) {
    return Error("adapter.unknown", text("there is no adapter ", quote(name)), "Ask for one of those that there are");
  }

  static std::string lower(std::string_view name) {
    std::string result(name);
    for (char& byte : result) {
      if (byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte - 'A' + 'a');
    }
    return result;
  }

  /// Some file systems and people do not tell cases apart. What was loaded by its name stands above what was found.
  void check_case(const StoredAdapter& one, const StoredAdapter* but) const {
    const auto fail = [&](const std::string& other) {
      throw Error("adapter.name", text("the name ", quote(one.name), " is taken by ", quote(other), ", case apart"),
                  "Give each adapter a name of its own");
    };
    const std::string key = lower(one.name);
    for (const std::string& other : taken_) {
      if (lower(other) == key) fail(other);
    }
    const auto [from, to] = by_case_.equal_range(key);
    for (auto other = from; other != to; ++other) {
      if (other->second != but && (one.scanned || !other->second->scanned)) fail(other->second->name);
    }
  }

  void check_new(const StoredAdapter& one) const {
    if (!is_adapter_name(one.name)) {
      throw Error("adapter.name", text("an adapter cannot be called ", quote(one.name)),
                  "Begin with a letter or digit, and use letters, digits, '.', '_' and '-' only, 128 at most");
    }
    const auto found = all_.find(one.name);
    if (found != all_.end() && !one.replaces) {
      throw Error("adapter.name", text("the name ", quote(one.name), " is taken"),
                  "Unload the adapter first, or say that this one is to replace it");
    }
    check_case(one, found == all_.end() ? &one : found->second.get());
  }

  void insert(const StoredRef& one) {
    one->served = budget_ == 0 || used_ + one->disk_bytes <= budget_;
    if (one->served) used_ += one->disk_bytes;
    by_case_.emplace(lower(one->name), one.get());
    all_.emplace(one->name, one);
  }

  StoredRef erase(std::string_view name) {
    const auto found = all_.find(name);
    if (found == all_.end()) return nullptr;
    StoredRef one = std::move(found->second);
    all_.erase(found);
    const auto [from, to] = by_case_.equal_range(lower(name));
    by_case_.erase(std::find_if(from, to, [&](const auto& other) { return other.second == one.get(); }));
    if (one->served) used_ -= one->disk_bytes;
    return one;
  }

  /// Looks into the folder again where it has changed. A time that is not long ago may be that of two changes.
  void scan() {
    namespace fs = std::filesystem;
    if (folder_.empty()) return;
    std::error_code fault;
    const auto changed = fs::last_write_time(folder_, fault);
    if (fault || (scanned_ && *scanned_ == changed)) return;
    const bool settled = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
    std::set<std::string, std::less<>> found;
    for (std::string& name : names_in(folder_.string(), fault)) {
      std::error_code ignored;
      const bool is_taken = std::find(taken_.begin(), taken_.end(), name) != taken_.end();
      if (!is_taken && is_adapter_name(name) && fs::is_directory(folder_ / name, ignored))
        found.insert(std::move(name));
    }
    if (fault) return;  // what was known stays
    scanned_ = settled ? std::optional(changed) : std::nullopt;
    std::vector<std::string> lost;
    for (const auto& [name, one] : all_) {
      if (one->scanned && found.find(name) == found.end()) lost.push_back(name);
    }
    for (const std::string& name : lost) gone_.push_back(erase(name));
    for (const std::string& name : found) {
      if (all_.find(name) != all_.end() || hidden_.find(name) != hidden_.end()) continue;
      insert(std::make_shared<StoredAdapter>(name, folder_ / name, folder_, true));
    }
  }

  const std::filesystem::path folder_;
  const std::vector<std::string> taken_;
  const std::uint64_t budget_;
  mutable std::mutex mutex_;                                  // of what follows
  std::map<std::string, StoredRef, std::less<>> all_;         // by name
  std::multimap<std::string, const StoredAdapter*> by_case_;  // by name in lower case
  std::set<std::string, std::less<>> hidden_;                 // sub-folders that were unloaded
  std::vector<StoredRef> gone_;
  std::uint64_t used_ = 0;
  std::optional<std::filesystem::file_time_type> scanned_;  // as of this change of the folder
};

}  // namespace detail
}}
