// --isa: selects the instruction set of the CPU backend.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "slm/backend/cpu/isa.hpp"

namespace cli {

/// Loading a model throws backend.unsupported-instruction-set if the machine lacks the set.
inline CLI::Option* add_isa_option(CLI::App& command, slm::backend::Isa& isa) {
  using slm::backend::Isa;
  const auto take = [&isa](const std::string& word) {
    for (const Isa named : {Isa::automatic, Isa::portable, Isa::avx2, Isa::avx512, Isa::amx}) {
      if (slm::backend::name_of(named) == word) isa = named;
    }
  };
  return command
      .add_option_function<std::string>("--isa", take,
                                        "instruction set of the cpu backend; automatic: the best one of this machine; "
                                        "an older set gives the results, and about the speed, of an older processor")
      ->check(CLI::IsMember({"automatic", "portable", "avx2", "avx512", "amx"}))
      ->default_str("automatic");
}

}  // namespace cli
