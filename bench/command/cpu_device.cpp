#include "bench/command/cpu_device.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace slm::bench {

namespace {

/// The name in /proc/cpuinfo, else the machine type.
std::string name_of_processor(const std::string& machine) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return machine;
}

/// "avx512, 4 bits by avx512_vnni"
std::string instruction_set(backend::Isa asked) {
  const backend::Isa isa = backend::resolve(asked);
  return text(backend::name_of(isa), ", 4 bits by ", backend::name_of(backend::dot_set(isa)));
}

}  // namespace

Device cpu_device(int threads, backend::Isa isa) {
  utsname system{};
  ::uname(&system);
  return {.name = name_of_processor(system.machine),
          .architecture = instruction_set(isa),
          .driver = text(system.sysname, " ", system.release),
          .backend = "cpu",
          .memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE),
          .cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency())),
          .threads = threads};
}

}  // namespace slm::bench
