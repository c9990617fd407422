// Free memory: the system's available memory within the limits of control groups.
#include "slm/core/free_memory.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("free memory is the available memory within the limits of control groups") {
  const TemporaryFolder root;
  const auto write = [&](const std::string& name, const std::string& content) {
    const auto path = root.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  };
  const auto free_in = [&](const std::string& groups,
                           const std::string& meminfo = "MemTotal: 9 kB\nMemAvailable: 8 kB\n") {
    std::istringstream memory(meminfo), lines(groups);
    return detail::free_memory_of(memory, lines, root.path().string());
  };
  CHECK(free_in("0::/outer/inner\n") == 8192);
  CHECK_FALSE(free_in("", "MemTotal: 9 kB\nMemAvailable: much\n"));

  write("outer/inner/memory.current", "5000\n");
  CHECK(free_in("0::/outer/inner\n") == 8192);
  write("outer/inner/memory.max", "max\n");
  CHECK(free_in("0::/outer/inner\n") == 8192);
  write("outer/memory.max", "7000\n");
  write("outer/memory.current", "6000\n");
  CHECK(free_in("0::/outer/inner\n") == 1000);
  CHECK(free_in("0::/outer/inner\n", "") == 1000);
  write("outer/memory.stat", "anon 3000\nfile 3000\ninactive_file 1500\nactive_file 500\n");
  CHECK(free_in("0::/outer/inner\n") == 3000);
  write("outer/memory.current", "1000\n");  // less than its files, as separately read numbers may state
  CHECK(free_in("0::/outer/inner\n") == 7000);
  write("outer/inner/memory.max", "4000\n");
  CHECK(free_in("0::/outer/inner\n") == 0);
  CHECK(free_in("0::/../outer\nnonsense\n") == 8192);

  write("memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/old/memory.usage_in_bytes", "5000\n");
  CHECK(free_in("4:memory:/old\n") == 8192);
  write("memory/old/memory.limit_in_bytes", "6000\n");
  write("memory/old/memory.stat", "active_file 1\ninactive_file 1\ntotal_active_file 200\ntotal_inactive_file 300\n");
  CHECK(free_in("4:memory:/old\n3:cpu,cpuacct:/old\n") == 1500);
}

TEST_CASE("this process has free memory") {
  CHECK(free_memory() > 0);
  CHECK(detail::usual_budget(2) >= (std::size_t{64} << 20));
}
