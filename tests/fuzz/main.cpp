#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "fuzzer.hpp"

namespace {

std::map<std::string, FuzzInput>& fuzzers() {
  static std::map<std::string, FuzzInput> fuzzers;
  return fuzzers;
}

FuzzInput chosen = nullptr;

}  // namespace

Fuzzer::Fuzzer(const char* file, FuzzInput run) {
  std::string name = std::filesystem::path(file).stem().string();
  name.erase(name.rfind("_fuzz"));
  fuzzers()["fuzz-" + name] = run;
}

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
  const auto found = fuzzers().find(std::filesystem::path((*arguments)[0]).filename().string());
  if (found != fuzzers().end()) {
    chosen = found->second;
    return 0;
  }
  std::cerr << "this program needs the name of a fuzzer:";
  for (const auto& [name, run] : fuzzers()) std::cerr << ' ' << name;
  std::cerr << '\n';
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { return chosen(data, size); }
