// What each part of the linkage test computes with all of slm in it: the parts must agree.
#pragma once

#include <string>

#include "everything.hpp"

std::string fingerprint_of_other();
std::string fingerprint_of_shared();

/// Greedy text of a tiny model, by ids. A registry without models keeps the compile short.
inline std::string fingerprint() {
  const char* folder = SLM_SOURCE_DIR "/tests/fixtures/models/llama-mha3h";
  slm::AutoregressiveDecoder decoder(slm::load(folder));
  std::string ids;
  const slm::Token prompt[] = {1, 5, 7};
  const slm::Sampling sampling{.max_new_tokens = 8, .temperature = 0.0f};
  decoder.generate(prompt, sampling, [&](slm::Token token) { ids += slm::text(" ", token); });
  return ids;
}

/// The parts also exchange types: an Error thrown in one is caught as Error in another.
[[noreturn]] inline void throw_error() { throw slm::Error("test.linkage", "thrown across a boundary", "Catch it"); }
