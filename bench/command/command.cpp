#include "bench/command/command.hpp"

namespace slm::bench {

void add_command(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("bench", "Measure speculation, kernels and decoding, and compare devices");
  command.require_subcommand(1);
  add_speculative(command);
  add_check(command);
  add_decode(command);
  add_kernels(command);
  add_compare(command);
}

}  // namespace slm::bench
