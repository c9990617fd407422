// An AdapterStore between threads: many threads request and use adapters while others are replaced, unloaded and
// evicted.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slm/engine/adapter_store.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

constexpr int names = 24, versions = 6;
constexpr std::size_t bytes = 100, budget = 8 * bytes;

struct Faults {
  std::atomic<int> stale = 0;     // an adapter that its name no longer referred to when it was requested
  std::atomic<int> gone = 0;      // an adapter that was not in memory while it was used
  std::atomic<int> too_many = 0;  // more in memory than the tier's budget
  std::atomic<int> used = 0;
};

/// A client's method of requesting an adapter, and the object it holds while it uses one.
using ResultSpec = std::function<AdapterRef(AdapterStore&, const std::string&)>;
using Hold = std::function<std::shared_ptr<const void>(AdapterStore&, AdapterRef)>;

/// Version v of an adapter is a separate folder, and its digest is v + 1.
void run(const ResultSpec& ask, const Hold& hold, Faults& faults) {
  TemporaryFolder folder;
  const auto place = [&](int version, int name) {
    return folder.path() / std::to_string(version) / ("n" + std::to_string(name));
  };
  for (int version = 0; version < versions; ++version) {
    for (int name = 0; name < names; ++name) {
      fs::create_directories(place(version, name));
      std::ofstream(place(version, name) / "adapter_model.safetensors") << std::string(bytes, 'x');
    }
  }
  struct Memory {
    std::mutex mutex;
    std::set<std::string> living;  // with separate names
    int made = 0;
  };
  const auto memory = std::make_shared<Memory>();
  ToyModel model{ToyOptions{}};
  model.info().read_adapter = [memory, &faults](const fs::path& from) -> AdapterRef {
    const auto version = static_cast<std::uint64_t>(std::stoi(from.parent_path().filename().string()));
    const std::lock_guard lock(memory->mutex);
    const std::string own = std::to_string(++memory->made);
    memory->living.insert(own);
    if (memory->living.size() * bytes > budget) ++faults.too_many;
    return {new Adapter{.name = own, .digest = version + 1, .bytes = bytes}, [memory](const Adapter* adapter) {
              const std::lock_guard freed(memory->mutex);
              memory->living.erase(adapter->name);
              delete adapter;
            }};
  };
  std::vector<std::atomic<int>> meant(names);  // the lowest version that a name may refer to
  AdapterStore store(model, {.folder = folder.path() / "0", .host_memory = budget});
  const auto use = [&](std::uint64_t client) {
    for (std::uint64_t i = 0; i < 150; ++i) {
      const auto name = static_cast<std::size_t>(mix(client * 7919 + i) % names);
      const int least = meant[name];
      AdapterRef adapter;
      try {
        adapter = ask(store, "n" + std::to_string(name));
      } catch (const Error& error) {
        if (error.id() == "adapter.unknown") continue;  // it is unloaded now
        throw;
      }
      const std::string used = adapter->name;
      if (adapter->digest < static_cast<std::uint64_t>(least) + 1) ++faults.stale;
      const auto held = hold(store, std::move(adapter));
      for (int look = 0; look < 3; ++look) {
        std::this_thread::yield();
        const std::lock_guard lock(memory->mutex);
        if (memory->living.count(used) == 0) ++faults.gone;
      }
      ++faults.used;
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t client = 0; client < 3; ++client) threads.emplace_back([&, client] { use(client); });
  threads.emplace_back([&] {
    for (int version = 1; version < versions; ++version) {
      for (int name = 0; name < names; ++name) {
        const std::string its = "n" + std::to_string(name);
        if (name % 6 == 0) store.unload(its);
        store.load(its, place(version, name), {.replace = true}).wait();
        meant[static_cast<std::size_t>(name)] = version;
        store.stats();
        store.names();
      }
    }
  });
  threads.clear();
  const AdapterStoreStats stats = store.stats();
  CHECK(stats.in_use.empty());
  CHECK(stats.awaited.empty());
  CHECK(stats.host.bytes <= budget);
  CHECK(stats.host.loads == stats.host.evictions + stats.host.freed + static_cast<std::int64_t>(stats.host.adapters));
}

AdapterRef wait(AdapterStore& store, const std::string& name) { return store.lease(name).wait(); }
std::shared_ptr<const void> handle(AdapterStore&, AdapterRef adapter) { return adapter; }

}  // namespace

TEST_CASE("no adapter is stale or freed while it is used, and memory keeps its budget") {
  Faults faults;
  run(wait, handle, faults);
  CHECK(faults.used > 300);
  CHECK(faults.stale == 0);
  CHECK(faults.gone == 0);
  CHECK(faults.too_many == 0);
}

TEST_CASE("the previous test detects an adapter that is evicted while it is used") {
  Faults faults;
  const auto let_go = [](AdapterStore& store, AdapterRef adapter) {
    adapter = nullptr;
    for (int name = 0; name < names; ++name) {
      if (name % 6 != 0) wait(store, "n" + std::to_string(name));
    }
    return nullptr;
  };
  run(wait, let_go, faults);
  CHECK(faults.gone > 0);
}

TEST_CASE("it also detects an adapter that its name no longer refers to") {
  Faults faults;
  std::mutex mutex;
  std::map<std::string, AdapterLease> first;  // a cache that is never invalidated
  const auto ask = [&](AdapterStore& store, const std::string& name) {
    AdapterLease ticket;
    {
      const std::lock_guard lock(mutex);
      ticket = first[name];
      if (!ticket) ticket = first[name] = store.lease(name);
    }
    return ticket.wait();
  };
  run(
      [&](AdapterStore& store, const std::string& name) {
        try {
          return ask(store, name);
        } catch (const Error&) {
          return wait(store, name);
        }
      },
      handle, faults);
  CHECK(faults.stale > 0);
}
