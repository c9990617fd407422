#include "bench/command/command.hpp"

#include "tools/cli/bench.hpp"

void cli::add_bench(CLI::App& program) {
  CLI::App& command = *program.add_subcommand(
      "bench", "Measure speculation, kernels and decoding, compare devices, and estimate costs");
  command.require_subcommand(1);
  slm::bench::add_speculative(command);
  slm::bench::add_check(command);
  slm::bench::add_decode(command);
  slm::bench::add_kernels(command);
  slm::bench::add_compare(command);
  slm::bench::add_adapters(command);
  slm::bench::add_plan(command);
  slm::bench::add_tokenize(command);
}
