// AdapterStore: many adapters of one model, by names, of which those that are wanted are in memory.
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/free_memory.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/engine/adapter_floors.hpp"
#include "slm/engine/adapter_index.hpp"
#include "slm/engine/adapter_options.hpp"
#include "slm/engine/adapter_ticket.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// How an adapter comes by a name.
struct AdapterLoading {
  bool replace = false;  // what the name means so far, once the new one is there
  bool inside = false;   // its files must lie in the store's folder
  bool pinned = false;
};

/// Adapters lie on three floors: on disk, as PEFT saves them; on the host, read and checked; on a device that has
/// memory of its own. One thread brings up those that are asked for; where a budget is spent, those go that were used
/// least recently, but none that is pinned or in use. Any thread may use a store. What was taken from it may outlive
/// it.
class AdapterStore {
 public:
  /// Throws adapter.no-folder, backend.no-thread.
  template <LanguageModel M>
  explicit AdapterStore(const M& model, AdapterStoreOptions options = {})
      : index_(std::make_shared<detail::AdapterIndex>(options.folder, options.taken, options.disk_memory)),
        floors_(std::make_shared<detail::AdapterFloors>(
            placing(std::move(options), model.info()),
            [info = model.info()](const std::filesystem::path& folder) { return read(folder, info); },
            [index = index_](const detail::StoredRef& one) { return index->publish(one); })),
        loader_(detail::start_thread([floors = floors_](const std::stop_token& stop) { floors->run(stop); })) {}
  ~AdapterStore() {
    loader_.request_stop();
    loader_.join();
    floors_->close();
  }
  AdapterStore(const AdapterStore&) = delete;
  AdapterStore& operator=(const AdapterStore&) = delete;

  /// Asks for an adapter, so that it is loaded while its reader still waits for something else. Whatever is wrong with
  /// its files is told by the ticket. Throws adapter.unknown, adapter.name or adapter.no-room where the name means
  /// none.
  AdapterTicket ask(std::string_view name) { return AdapterTicket(floors_->wish(find(name))); }

  /// Loads an adapter from any folder; from when it is there, its name means it. Where the ticket is gone before, it is
  /// not loaded. Throws adapter.name.
  AdapterTicket load(std::string name, const std::filesystem::path& folder, const AdapterLoading& how = {}) {
    const auto one = std::make_shared<detail::StoredAdapter>(
        std::move(name), folder, how.inside ? index_->folder() : std::filesystem::path{}, false);
    one->replaces = how.replace;
    one->to_publish = true;
    one->pinned = how.pinned;
    index_->check(*one);
    return AdapterTicket(floors_->wish(one));
  }

  /// From now on the name means nothing, also where a sub-folder has it. Those who use the adapter or have asked for it
  /// keep it; the last one frees it. Throws adapter.unknown.
  void unload(std::string_view name) { floors_->unname(index_->remove(name)); }

  /// The adapter is loaded and stays; or goes again like others. Throws as ask().
  void pin(std::string_view name, bool pinned = true) { floors_->pin(find(name), pinned); }

  /// What may be asked for, in order, whatever is wrong with their files.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (auto& one : folders()) names.push_back(std::move(one.first));
    return names;
  }
  /// The same, and where each lies.
  std::vector<std::pair<std::string, std::filesystem::path>> folders() {
    auto folders = index_->folders();
    drop_gone();
    return folders;
  }
  /// AdapterStoreOptions::folder.
  const std::filesystem::path& folder() const { return index_->folder(); }
  /// Throws as ask().
  std::filesystem::path folder_of(std::string_view name) { return find(name)->folder; }

  AdapterStoreStats stats() const {
    AdapterStoreStats stats = floors_->stats();
    std::tie(stats.disk.adapters, stats.disk.bytes) = index_->size();
    stats.disk.budget = index_->budget();
    return stats;
  }

 private:
  static AdapterStoreOptions placing(AdapterStoreOptions options, const ModelInfo& model) {
    if (options.host_memory == 0) options.host_memory = detail::usual_budget(4);
    if (model.own_memory && !options.place) options.place = model.place_adapter;
    return options;
  }

  /// Where the two floors are one, an adapter is placed as it is read.
  static AdapterRef read(const std::filesystem::path& folder, const ModelInfo& model) {
    return model.own_memory && model.read_adapter ? model.read_adapter(folder) : load_adapter(folder, model);
  }

  detail::StoredRef find(std::string_view name) {
    detail::StoredRef one = index_->find(name);
    drop_gone();
    return one;
  }
  void drop_gone() {
    for (const detail::StoredRef& one : index_->take_gone()) floors_->unname(one);
  }

  std::shared_ptr<detail::AdapterIndex> index_;
  std::shared_ptr<detail::AdapterFloors> floors_;
  std::jthread loader_;
};

}}
