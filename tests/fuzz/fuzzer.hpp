// A file's fuzzer: SLM_FUZZER(data, size) { ... return 0; }. All fuzzers are one program, which runs the one of its
// name.
#pragma once

#include <cstddef>
#include <cstdint>

using FuzzInput = int (*)(const std::uint8_t* data, std::size_t size);

/// Adds the fuzzer of tests/fuzz/NAME_fuzz.cpp, which the program fuzz-NAME runs.
struct Fuzzer {
  Fuzzer(const char* file, FuzzInput run);
};

#define SLM_FUZZER(data, size)                                       \
  static int fuzz_input(const std::uint8_t* data, std::size_t size); \
  static const Fuzzer fuzzer_of_this_file(__FILE__, fuzz_input);     \
  static int fuzz_input(const std::uint8_t* data, std::size_t size)
