// `slm bench`: measurements and estimates. Each subcommand has one file.
#pragma once

#include <CLI/CLI.hpp>

namespace slm::bench {

// Each adds one subcommand to `bench`.
void add_speculative(CLI::App& bench);
void add_check(CLI::App& bench);
void add_decode(CLI::App& bench);
void add_kernels(CLI::App& bench);
void add_compare(CLI::App& bench);
void add_adapters(CLI::App& bench);
void add_plan(CLI::App& bench);
void add_tokenize(CLI::App& bench);

}  // namespace slm::bench
