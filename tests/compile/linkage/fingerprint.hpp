// The computation of each part of the linkage test, which includes all of slm. The parts have different compiler flags
// and must agree in every bit.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "everything.hpp"

std::string fingerprint_of_other();
std::string fingerprint_of_shared();

/// The logits of a tiny model by the portable kernels, as bits, and a sampled text.
inline std::string fingerprint() {
  const char* folder = SLM_SOURCE_DIR "/tests/fixtures/models/llama-mha3h";
  const slm::AnyModel model = slm::load(folder, slm::backend::Cpu({.threads = 1, .isa = slm::backend::Isa::portable}));
  const slm::Token prompt[] = {1, 5, 7};
  slm::Session session(model);
  std::string found;
  const slm::View<const float, 2> logits = session.forward(prompt, 3);
  for (std::int64_t row = 0; row < logits.extent(0); ++row) {
    for (std::int64_t i = 0; i < logits.extent(1); ++i) {
      found += slm::text(std::bit_cast<std::uint32_t>(logits.row(row)[i]), " ");
    }
  }
  slm::AutoregressiveDecoder decoder(model);
  const slm::Sampling sampling{.max_new_tokens = 8, .temperature = 0.8f, .top_p = 0.9f, .seed = 5};
  decoder.generate(prompt, sampling, [&](slm::Token token) { found += slm::text(" ", token); });
  return found;
}

/// The parts also exchange types: an Error thrown in one is caught as Error in another.
[[noreturn]] inline void throw_error() { throw slm::Error("test.linkage", "thrown across a boundary", "Catch it"); }
