// AdapterNames: maps names to the adapters of a store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/engine/adapter_entry.hpp"

namespace slm { inline namespace v0_1 {

/// Returns true for a valid adapter name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
inline bool is_adapter_name(std::string_view name) {
  const auto is_plain = [](char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
  };
  return !name.empty() && name.size() <= 128 && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char byte) { return is_plain(byte) || byte == '.' || byte == '_' || byte == '-'; });
}

namespace detail {

/// Not thread-safe. A call that throws changes nothing.
class AdapterNames {
 public:
  /// taken: reserved names. budget: bytes of the weights of all named adapters; 0: no limit.
  AdapterNames(std::vector<std::string> taken, std::uint64_t budget) : taken_(std::move(taken)), budget_(budget) {}

  std::size_t size() const { return all_.size(); }
  std::uint64_t bytes() const { return bytes_; }
  /// The named adapters in order of their names.
  std::vector<EntryRef> entries() const {
    std::vector<EntryRef> entries;
    for (const auto& named : all_) entries.push_back(named.second);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a->name < b->name; });
    return entries;
  }

  bool has(std::string_view name) const { return place_of(name) != all_.end(); }
  /// Whether a sub-folder is an adapter without a name.
  bool is_new(const std::string& name) const { return !has(name) && !hidden_.contains(name); }
  bool may_be_found(const std::string& name) const {
    return is_adapter_name(name) && std::find(taken_.begin(), taken_.end(), name) == taken_.end();
  }

  /// Throws adapter.unknown; adapter.name if another name differs by case only; adapter.no-room if the disk budget is
  /// exceeded.
  EntryRef find(std::string_view name) const {
    const auto named = place_of(name);
    if (named == all_.end()) throw unknown(name);
    check_case(*named->second);
    if (named->second->served) return named->second;
    throw Error("adapter.no-room",
                text("the weights of ", quote(name), " have ", named->second->disk_bytes,
                     " bytes; expected them to fit into the disk budget, of which ", bytes_, " of ", budget_,
                     " bytes are used"),
                "Remove adapters, or raise AdapterStoreOptions::disk_memory");
  }
  /// Throws adapter.name if the entry's name is invalid, or taken and not replaceable.
  void check_new(const AdapterEntry& entry) const {
    if (!is_adapter_name(entry.name)) {
      throw Error("adapter.name", text("expected a valid adapter name, found ", quote(entry.name)),
                  "Use at most 128 letters, digits, '.', '_' and '-', beginning with a letter or digit");
    }
    if (has(entry.name) && !entry.replaces) {
      throw Error("adapter.name", text("the name ", quote(entry.name), " is taken"),
                  "Unload the adapter first, or set AdapterLoading::replace");
    }
    check_case(entry);
  }

  /// Assigns the entry's name to it. Returns the previous entry of that name, or null.
  EntryRef give(const EntryRef& entry) {
    const auto before = place_of(entry->name);
    all_.emplace(entry->name, entry);
    hidden_.erase(entry->name);
    EntryRef replaced = before == all_.end() ? nullptr : take(before);
    entry->named = true;
    entry->served = budget_ == 0 || bytes_ + entry->disk_bytes <= budget_;
    if (entry->served) bytes_ += entry->disk_bytes;
    return replaced;
  }
  /// Removes the entry's name.
  void remove(const AdapterEntry& entry) noexcept { take(place_of(entry.name)); }
  /// Removes a name, and hides a sub-folder of that name. Throws adapter.unknown.
  EntryRef hide(std::string_view name) {
    const auto named = place_of(name);
    if (named == all_.end()) throw unknown(name);
    hidden_.insert(named->first);
    return take(named);
  }

 private:
  /// Compares names without case, since some file systems do.
  struct CaseLess {
    using is_transparent = void;
    static char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte; }
    bool operator()(std::string_view left, std::string_view right) const {
      return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                          [](char a, char b) { return lower(a) < lower(b); });
    }
  };
  using All = std::multimap<std::string, EntryRef, CaseLess>;

  static Error unknown(std::string_view name) {
    return Error("adapter.unknown", text("no adapter has the name ", quote(name)), "Use a name returned by names()");
  }

  All::const_iterator place_of(std::string_view name) const {
    const auto [first, last] = all_.equal_range(name);
    const auto found = std::find_if(first, last, [&](const auto& named) { return named.first == name; });
    return found == last ? all_.end() : found;
  }

  /// A loaded adapter keeps its name when the folder is scanned.
  void check_case(const AdapterEntry& entry) const {
    const auto refuse = [&](std::string_view other) {
      throw Error("adapter.name",
                  text("the name ", quote(entry.name), " is taken by ", quote(other), ", which differs by case only"),
                  "Give each adapter a unique name");
    };
    for (const std::string& other : taken_) {
      if (!CaseLess{}(other, entry.name) && !CaseLess{}(entry.name, other)) refuse(other);
    }
    const auto [first, last] = all_.equal_range(entry.name);
    for (auto other = first; other != last; ++other) {
      if (other->first != entry.name && (entry.found || !other->second->found)) refuse(other->first);
    }
  }

  EntryRef take(All::const_iterator named) noexcept {
    EntryRef entry = named->second;
    all_.erase(named);
    entry->named = false;
    if (entry->served) bytes_ -= entry->disk_bytes;
    return entry;
  }

  const std::vector<std::string> taken_;
  const std::uint64_t budget_;
  All all_;
  std::set<std::string, std::less<>> hidden_;  // sub-folders that were unloaded
  std::uint64_t bytes_ = 0;
};

}  // namespace detail
}}
