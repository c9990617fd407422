// AdapterStore: names refer to the folder's contents, tiers keep their budgets, and adapters in use stay.
#include "slm/engine/adapter_store.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary.hpp"
#include "support/toy_adapters.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

template <class Condition>
bool soon(Condition&& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void check_sums(const AdapterStoreStats& stats) {
  for (const AdapterTierStats& tier : {stats.host, stats.device}) {
    CHECK(tier.loads == tier.evictions + tier.freed + static_cast<std::int64_t>(tier.adapters));
    if (tier.budget != 0) CHECK(tier.bytes <= tier.budget);
  }
}

}  // namespace

TEST_CASE("sub-folders are adapters by their names, found on request") {
  ToyAdapters adapters;
  adapters.write("sql", 100);
  for (const char* name : {".git", "-x", "a b", "new\nline", "\xc3\xa9t\xc3\xa9"}) adapters.write(name, 10);
  std::ofstream(adapters.path() / "README.md") << "no folder";
  AdapterStore store(adapters.model(), {.folder = adapters.path(), .taken = {"base"}});
  CHECK(store.names() == std::vector<std::string>{"sql"});
  CHECK(adapters.reads() == 0);
  CHECK(store.lease("sql").wait()->bytes == 100);
  for (const char* name : {"", "..", ".git", "a b", "sql/", "sql/../sql", "/etc", "none", "new\nline", "SQL"}) {
    CHECK(error_id([&] { store.lease(name); }) == "adapter.unknown");
  }
  adapters.write("later", 10);
  adapters.write("base", 10);
  CHECK(store.lease("later").wait()->bytes == 10);
  CHECK(store.names() == std::vector<std::string>{"later", "sql"});
  const AdapterRef used = store.lease("sql").wait();
  fs::remove_all(adapters.path() / "sql");
  CHECK(store.names() == std::vector<std::string>{"later"});
  CHECK(error_id([&] { store.lease("sql"); }) == "adapter.unknown");
  CHECK(used->bytes == 100);
  CHECK(error_id([&] { AdapterStore(adapters.model(), {.folder = adapters.path() / "none"}); }) == "adapter.no-folder");
}

TEST_CASE("two names that differ only by case are rejected, and a loaded name has priority over a found one") {
  ToyAdapters adapters;
  adapters.write("sql", 10);
  adapters.write("SQL", 10);
  adapters.write("Base", 10);
  AdapterStore store(adapters.model(), {.folder = adapters.path(), .taken = {"base"}});
  for (const char* name : {"sql", "SQL", "Base"}) CHECK(error_id([&] { store.lease(name); }) == "adapter.name");
  const fs::path chat = adapters.write("other/chat", 10);
  for (const char* name : {"BASE", "a/b", "", "..", "x\n"}) {
    CHECK(error_id([&] { store.load(name, chat); }) == "adapter.name");
  }
  store.load("chat", chat).wait();
  CHECK(error_id([&] { store.load("chat", chat); }) == "adapter.name");
  CHECK(error_id([&] { store.load("CHAT", chat, {.replace = true}); }) == "adapter.name");
  adapters.write("Chat", 10);
  CHECK(error_id([&] { store.lease("Chat"); }) == "adapter.name");
  CHECK(store.lease("chat").wait()->bytes == 10);
}

TEST_CASE("adapters outside the folder are rejected") {
  ToyAdapters adapters, elsewhere;
  elsewhere.write("one", 10);
  adapters.write("two", 10);
  fs::create_directory_symlink(elsewhere.path() / "one", adapters.path() / "one");
  fs::create_directory_symlink(adapters.path() / "two", adapters.path() / "alias");
  fs::create_directories(adapters.path() / "file");
  fs::create_symlink(elsewhere.path() / "one" / "adapter_model.safetensors",
                     adapters.path() / "file" / "adapter_model.safetensors");
  AdapterStore store(adapters.model(), adapters.options());
  CHECK(error_id([&] { store.lease("one").wait(); }) == "adapter.outside");
  CHECK(error_id([&] { store.lease("file").wait(); }) == "adapter.outside");
  CHECK(store.lease("alias").wait()->bytes == 10);
  const auto load = [&](const fs::path& folder) { store.load("three", folder, {.inside = true}).wait(); };
  CHECK(error_id([&] { load(elsewhere.path() / "one"); }) == "adapter.outside");
  CHECK(error_id([&] { load(adapters.path() / ".." / elsewhere.path().filename() / "one"); }) == "adapter.outside");
  load(adapters.path() / "two");
}

TEST_CASE(
    "a tier keeps its budget: the least recently used adapters are evicted, except those in use, pinned or leased") {
  ToyAdapters adapters;
  adapters.write_some(5);
  AdapterStore store(adapters.model(), adapters.options(200));
  store.lease("a").wait();
  store.lease("b").wait();
  store.lease("a").wait();
  const AdapterRef c = store.lease("c").wait();  // in place of b
  CHECK(adapters.reads() == 3);
  store.lease("a").wait();
  CHECK(adapters.reads() == 3);
  store.lease("d").wait();  // in place of a, since c is in use
  CHECK(c->bytes == 100);
  store.pin("d");
  AdapterLease wanted = store.lease("e");
  CHECK(soon([&] { return wanted.lacks_memory(); }));
  CHECK(wanted.take() == nullptr);
  wanted.press();
  CHECK(adapters.reads() == 4);
  store.pin("d", false);
  CHECK(soon([&] { return wanted.take() != nullptr; }));
  CHECK(error_id([&] { store.lease("d").wait(); }) == "no error");
  check_sums(store.stats());
  CHECK(adapters.most() <= 200);

  const AdapterStoreStats stats = store.stats();
  CHECK(stats.hits + stats.misses == 8);
  CHECK(stats.hits == 2);
  CHECK(stats.host.loads == adapters.reads());
  CHECK(stats.host.bytes == adapters.bytes());
  CHECK(stats.disk.adapters == 5);
  CHECK(stats.disk.bytes == 500);
  CHECK(stats.in_use == std::vector<std::string>{"c"});
  CHECK(stats.load_seconds.count == stats.host.loads);
}

TEST_CASE("a leased adapter is evicted only for an urgent one") {
  ToyAdapters adapters;
  adapters.write_some(3);
  AdapterStore store(adapters.model(), adapters.options(200));
  const AdapterLease a = store.lease("a"), b = store.lease("b");
  CHECK(soon([&] { return store.stats().host.adapters == 2; }));
  const AdapterLease c = store.lease("c");
  CHECK(soon([&] { return c.lacks_memory(); }));
  CHECK(store.stats().host.evictions == 0);
  c.press();
  CHECK(soon([&] { return store.stats().host.loads == 3; }));
  CHECK(a.take() == nullptr);  // it was evicted, and is requested again
  CHECK(b.take() != nullptr);
  CHECK(a.wait() != nullptr);
  CHECK(adapters.most() <= 200);
  check_sums(store.stats());
}

TEST_CASE("a tier that is too small, or full of pinned adapters, is an error") {
  ToyAdapters adapters;
  adapters.write_some(3);
  adapters.write("large", 201);
  AdapterStore store(adapters.model(), adapters.options(200));
  CHECK(error_id([&] { store.lease("large").wait(); }) == "adapter.no-room");
  CHECK(adapters.reads() == 0);
  store.pin("a");
  store.pin("b");
  CHECK(soon([&] { return store.stats().pinned == 2; }));
  CHECK(error_id([&] { store.lease("c").wait(); }) == "adapter.no-room");
  CHECK(store.lease("a").wait() != nullptr);
  check_sums(store.stats());

  AdapterStore small(adapters.model(), {.folder = adapters.path(), .disk_memory = 250});
  CHECK(small.lease("b").wait() != nullptr);
  CHECK(error_id([&] { small.lease("c"); }) == "adapter.no-room");
  CHECK(small.stats().disk.bytes == 200);
}

TEST_CASE("a failure affects one adapter, is remembered for a while, and can then be fixed") {
  ToyAdapters adapters;
  adapters.write("good", 10);
  adapters.write("bad", 0);
  adapters.write("vanished", 10);
  double now = 0;
  AdapterStoreOptions options = adapters.options();
  options.clock = [&] { return now; };
  AdapterStore store(adapters.model(), options);
  fs::remove(adapters.path() / "vanished" / "adapter_model.safetensors");
  for (int i = 0; i < 3; ++i) {
    CHECK(error_id([&] { store.lease("bad").wait(); }) == "adapter.missing-tensor");
    CHECK(error_id([&] { store.lease("vanished").wait(); }) == "adapter.missing-tensor");
  }
  CHECK(adapters.reads() == 2);
  CHECK(store.lease("good").wait() != nullptr);
  adapters.write("bad", 10);
  now = 9;
  CHECK(error_id([&] { store.lease("bad").wait(); }) == "adapter.missing-tensor");
  now = 10;
  CHECK(store.lease("bad").wait() != nullptr);
  CHECK(store.stats().failures == 2);
  check_sums(store.stats());
}

TEST_CASE("files that grow while they are read are rejected") {
  ToyAdapters adapters;
  adapters.write("one", 10);
  ToyModel model = adapters.model();
  model.info().read_adapter = [&, read = model.info().read_adapter](const fs::path& folder) {
    adapters.write("one", 11);
    return read(folder);
  };
  AdapterStore store(model, adapters.options(15));
  CHECK(error_id([&] { store.lease("one").wait(); }) == "adapter.changed");
  CHECK(store.stats().host.bytes == 0);
  CHECK(adapters.bytes() == 0);
}

TEST_CASE("thousands of invalid folders do not disturb a valid one") {
  constexpr int count = 2000;
  ToyAdapters adapters;
  for (int i = 0; i < count; ++i) fs::create_directory(adapters.path() / std::to_string(i));
  adapters.write("good", 10);
  AdapterStore store(adapters.model(), adapters.options());
  CHECK(store.names().size() == count + 1);
  std::vector<AdapterLease> bad;
  for (int i = 0; i < count; ++i) bad.push_back(store.lease(std::to_string(i)));
  CHECK(store.lease("good").wait()->bytes == 10);
  for (const AdapterLease& ticket : bad) REQUIRE(error_id([&] { ticket.wait(); }) == "adapter.missing-tensor");
  const AdapterStoreStats stats = store.stats();
  CHECK(stats.failures == count);
  CHECK(stats.misses == count + 1);
}

TEST_CASE("many requests for one adapter load it once, and abandoned requests do not load it") {
  ToyAdapters adapters;
  adapters.write_some(3);
  AdapterStore store(adapters.model(), adapters.options());
  {
    std::unique_lock held(adapters.gate());
    const AdapterLease a = store.lease("a");
    CHECK(soon([&] { return store.stats().awaited.size() == 1; }));
    std::vector<AdapterLease> tickets;
    for (int i = 0; i < 50; ++i) tickets.push_back(store.lease("b"));
    std::atomic<int> news = 0;
    for (const AdapterLease& ticket : tickets) ticket.on_news([&] { ++news; });
    store.lease("c");  // whose lease ends immediately
    CHECK(store.stats().awaited.size() == 2);
    held.unlock();
    CHECK(soon([&] { return news == 50; }));
    for (const AdapterLease& ticket : tickets) CHECK(ticket.take() == tickets.front().take());
    CHECK(tickets.front().settled());
    CHECK(tickets.front().digest() == tickets.front().take()->digest);
  }
  CHECK(adapters.reads() == 2);
}

TEST_CASE("an unloaded or replaced adapter stays with its users, and is freed with the last one") {
  ToyAdapters adapters;
  adapters.write("a", 100);
  AdapterStore store(adapters.model(), adapters.options(250));
  AdapterRef used = store.lease("a").wait();
  AdapterLease asked = store.lease("a");
  store.load("a", adapters.write("a", 101), {.replace = true}).wait();
  const AdapterRef newer = store.lease("a").wait();
  CHECK(newer->bytes == 101);
  CHECK(used->bytes == 100);
  CHECK(asked.take() == used);
  CHECK(adapters.bytes() == 201);
  CHECK(store.stats().host.bytes == 201);
  used = nullptr;
  CHECK(adapters.bytes() == 201);  // the lease may still be used
  asked = {};
  CHECK(soon([&] { return adapters.bytes() == 101; }));

  store.unload("a");
  CHECK(store.names().empty());  // although the sub-folder exists
  CHECK(error_id([&] { store.lease("a"); }) == "adapter.unknown");
  CHECK(error_id([&] { store.unload("a"); }) == "adapter.unknown");
  CHECK(newer->bytes == 101);
  CHECK(error_id([&] { store.load("a", adapters.write("b", 0)).wait(); }) == "adapter.missing-tensor");
  CHECK(error_id([&] { store.lease("a"); }) == "adapter.unknown");
  store.load("a", adapters.path() / "a").wait();
  CHECK(store.lease("a").wait() != newer);
  const AdapterStoreStats stats = store.stats();
  CHECK(stats.host.freed == 1);
  check_sums(stats);
}

TEST_CASE("a replacement that cannot be loaded changes nothing") {
  ToyAdapters adapters;
  adapters.write("a", 100);
  AdapterStore store(adapters.model(), adapters.options());
  store.lease("a").wait();
  const fs::path empty = adapters.write("b", 0);
  CHECK(error_id([&] { store.load("a", empty, {.replace = true}).wait(); }) == "adapter.missing-tensor");
  CHECK(store.lease("a").wait()->bytes == 100);
}

TEST_CASE("a device with separate memory is a third tier") {
  ToyAdapters adapters;
  adapters.write_some(5);
  std::atomic<std::size_t> on_device = 0;
  std::atomic<bool> broken = false;
  AdapterStoreOptions options = adapters.options(400);
  options.device_memory = 200;
  options.place = [&](const AdapterRef& adapter) -> AdapterRef {
    if (broken) throw Error("gpu.out-of-memory", "the device is full", "Buy another");
    on_device += adapter->bytes;
    return {new Adapter{*adapter}, [&on_device](const Adapter* placed) {
              on_device -= placed->bytes;
              delete placed;
            }};
  };
  {
    AdapterStore store(adapters.model(), options);
    for (const char* name : {"a", "b", "c", "d"}) store.lease(name).wait();
    CHECK(adapters.bytes() == 400);
    CHECK(on_device == 200);
    const AdapterRef a = store.lease("a").wait();
    CHECK(adapters.reads() == 4);  // it was on the host
    store.lease("e").wait();       // in place of b on the host
    CHECK(adapters.bytes() == 400);
    CHECK(on_device == 200);
    AdapterStoreStats stats = store.stats();
    CHECK(stats.device.loads == 6);
    CHECK(stats.device.evictions == 4);
    CHECK(stats.host.evictions == 1);
    check_sums(stats);
    broken = true;
    CHECK(error_id([&] { store.lease("b").wait(); }) == "gpu.out-of-memory");
    CHECK(error_id([&] { store.lease("c").wait(); }) == "gpu.out-of-memory");
    CHECK(store.lease("a").wait() == a);
    check_sums(store.stats());
  }
  CHECK(adapters.bytes() == 0);
  CHECK(on_device == 0);
}

TEST_CASE("a handle outlives its store, and a lease ends with it") {
  ToyAdapters adapters;
  adapters.write_some(2);
  AdapterRef a;
  AdapterLease b;
  {
    AdapterStore store(adapters.model(), adapters.options(100));
    a = store.lease("a").wait();
    b = store.lease("b");
    CHECK(soon([&] { return b.lacks_memory(); }));
  }
  CHECK(a->bytes == 100);
  CHECK(error_id([&] { b.wait(); }) == "adapter.unknown");
  CHECK(b.settled());
  b = {};
  a = nullptr;
  CHECK(adapters.bytes() == 0);
}
