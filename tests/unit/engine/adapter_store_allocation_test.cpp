// An AdapterStore and load_adapter() with each allocation failing in turn, in the calling thread or the loader's.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/model/load.hpp"
#include "support/allocations.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t size = 100;  // of an adapter

/// Folders a, b, c and a/new, and a model that reads them, on a device with separate memory.
class Place {
 public:
  Place() {
    for (const char* name : {"a", "b", "c", "a/new"}) {
      fs::create_directories(folder_.path() / name);
      std::ofstream(folder_.path() / name / "adapter_model.safetensors") << std::string(size, 'x');
    }
    model_.info().read_adapter = [this](const fs::path& folder) {
      return counted(host_, {.name = folder.filename().string(), .digest = folder.filename() == "new" ? 2u : 1u});
    };
  }

  AdapterStoreOptions options() {
    AdapterStoreOptions options{.folder = folder_.path(), .device_memory = size, .host_memory = 2 * size};
    options.place = [this](const AdapterRef& adapter) { return counted(device_, *adapter); };
    options.clock = [this] { return now_.load(); };
    return options;
  }
  const ToyModel& model() const { return model_; }
  fs::path newer() const { return folder_.path() / "a" / "new"; }
  void forget_failures() { now_ = now_ + 100; }
  std::size_t on_host() const { return host_; }
  std::size_t on_device() const { return device_; }

 private:
  static AdapterRef counted(std::atomic<std::size_t>& bytes, Adapter adapter) {
    adapter.bytes = size;
    auto made = std::make_unique<const Adapter>(std::move(adapter));
    bytes += size;  // the deleter runs without memory for the handle
    return AdapterRef(made.release(), [&bytes](const Adapter* one) {
      bytes -= size;
      delete one;
    });
  }

  TemporaryFolder folder_;
  ToyModel model_{ToyOptions{}};
  std::atomic<std::size_t> host_ = 0, device_ = 0;
  std::atomic<double> now_ = 0;
};

template <class Condition>
bool soon(Condition&& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

/// Loads, evicts from both tiers, replaces and unloads.
void use(AdapterStore& store, const Place& place) {
  for (const char* name : {"a", "b", "c", "a"}) {
    const AdapterLease lease = store.lease(name);
    lease.on_news([news = std::make_shared<std::atomic<int>>()] { ++*news; });
    const AdapterRef adapter = lease.wait();
    if (lease.take() != adapter) throw Error("test", "another adapter", "");
  }
  store.pin("b");
  store.lease("b").wait();
  store.pin("b", false);
  store.load("a", place.newer(), {.replace = true, .inside = true}).wait();
  store.unload("c");
  store.load("c", place.newer()).wait();
  store.load("c", place.newer(), {.replace = true, .pinned = true}).wait();
  store.pin("c", false);
  store.folders();
  store.stats();
}

bool balances(const AdapterStore& store, const Place& place) {
  const AdapterStoreStats stats = store.stats();
  bool sound = stats.in_use.empty() && stats.awaited.empty() && stats.pinned == 0;
  for (const AdapterTierStats& tier : {stats.host, stats.device})
    sound = sound && tier.loads == tier.evictions + tier.freed + static_cast<std::int64_t>(tier.adapters) &&
            tier.bytes == tier.adapters * size && tier.bytes <= tier.budget;
  return sound && stats.host.bytes == place.on_host() && stats.device.bytes == place.on_device() &&
         stats.disk.bytes == stats.disk.adapters * size;
}

}  // namespace

TEST_CASE("for any failing allocation of a store's life, its memory is freed and no call hangs") {
  Place place;
  for (const Failing whose : {Failing::here, Failing::elsewhere, Failing::everywhere}) {
    int failed = 0, held = 0;
    fail_each_allocation(
        [&](Failure& failure) {
          failed += !failure.spares([&] {
            AdapterStore store(place.model(), place.options());
            use(store, place);
          });
          held += place.on_host() + place.on_device() != 0;
        },
        whose);
    CHECK(failed > 20);
    CHECK(held == 0);
  }
}

TEST_CASE("after a failed allocation a store works: names, budgets and counts are consistent") {
  for (const Failing whose : {Failing::here, Failing::elsewhere, Failing::everywhere}) {
    int failed = 0, wrong = 0;
    fail_each_allocation(
        [&](Failure& failure) {
          Place place;
          AdapterStore store(place.model(), place.options());
          failed += !failure.spares([&] { use(store, place); });
          wrong += !soon([&] {
            for (const std::string& name : store.names()) store.pin(name, false);
            return balances(store, place);
          });
          place.forget_failures();
          for (const std::string& name : store.names()) wrong += store.lease(name).wait() == nullptr;
          wrong += !soon([&] { return balances(store, place); });
          const std::vector<std::string> names = store.names();
          wrong += names.size() < 2 || names.front() != "a" || names[1] != "b";
        },
        whose);
    CHECK(failed > 20);
    CHECK(wrong == 0);
  }
}

TEST_CASE("an adapter that failed for lack of memory reports that to all its leases, and others are loaded") {
  Place place;
  AdapterStore store(place.model(), place.options());
  const AdapterLease first = store.lease("a");
  CHECK(first.wait() != nullptr);
  const AdapterLease lease = [&] {
    std::vector<AdapterLease> made;
    Failure failure(1, true, Failing::elsewhere);
    CHECK(!failure.spares([&] {
      made.push_back(store.lease("b"));
      made.front().wait();
    }));
    return made.front();
  }();
  CHECK_THROWS_AS(lease.take(), std::bad_alloc);
  CHECK_THROWS_AS(store.lease("b").wait(), std::bad_alloc);
  CHECK(lease.settled());
  CHECK(first.take() != nullptr);
  place.forget_failures();
  CHECK(lease.wait() != nullptr);
}

TEST_CASE("load_adapter with failing allocations throws, and then loads the same adapter") {
  const TemporaryFolder folder;
  const auto path = write_least_model(folder.path() / "target", 1);
  const AnyModel model = load(path, backend::Cpu(1));
  write_random_adapter(folder.path() / "adapter", Checkpoint(path), {.seed = 1, .rank = 2});
  const auto digest = load_adapter(folder.path() / "adapter", model)->digest;
  int failed = 0, wrong = 0;
  fail_each_allocation(
      [&](Failure& failure) {
        AdapterRef adapter;
        failed += !failure.spares([&] { adapter = load_adapter(folder.path() / "adapter", model); });
        if (adapter != nullptr) wrong += adapter->digest != digest;
      },
      Failing::everywhere);
  CHECK(failed > 20);
  CHECK(wrong == 0);
  CHECK(load_adapter(folder.path() / "adapter", model)->digest == digest);
}
