// The only subcommand outside examples/slm: bench/ defines it, and the program links it.
#pragma once

#include <CLI/CLI.hpp>

namespace cli {

void add_bench(CLI::App& program);

}  // namespace cli
