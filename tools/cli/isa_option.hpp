// --isa: which of the processor's instruction sets computes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "slm/backend/cpu/isa.hpp"

namespace cli {

/// A set that this machine does not have is backend.unsupported-instruction-set, when a model is loaded.
inline CLI::Option* add_isa_option(CLI::App& command, slm::backend::Isa& isa) {
  using slm::backend::Isa;
  const auto take = [&isa](const std::string& word) {
    for (const Isa named : {Isa::automatic, Isa::portable, Isa::avx2, Isa::avx512, Isa::amx}) {
      if (slm::backend::name_of(named) == word) isa = named;
    }
  };
  return command
      .add_option_function<std::string>(
          "--isa", take,
          "instruction set of the cpu backend: an older processor's gives the bits, and "
          "about the speed, that it gives there; automatic is the best one of this machine")
      ->check(CLI::IsMember({"automatic", "portable", "avx2", "avx512", "amx"}))
      ->default_str("automatic");
}

}  // namespace cli
