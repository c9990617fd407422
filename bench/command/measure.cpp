// `slm bench decode` and `slm bench kernels`: tables for the backend that the program was built for.
#include "bench/device/measure.hpp"

#include <iostream>
#include <memory>

#include "bench/command/command.hpp"
#include "bench/command/tables.hpp"
#include "slm/core/error.hpp"
#include "slm/io/write_file.hpp"
#include "tools/cli/isa_option.hpp"

namespace slm::bench {

namespace {

struct MeasureCommand {
  MeasureOptions options;
  std::string backend, json, markdown;
};

Report measure_on([[maybe_unused]] const std::string& backend, [[maybe_unused]] const MeasureOptions& options) {
#if !defined(SLM_BENCH_DEVICE)
  throw Error(
      "bench.no-harness", "this slm was built without Google Benchmark, which runs the measurements",
      "Install it (Debian: apt-get install libbenchmark-dev), configure again with -DSLM_BUILD_BENCH=ON, and build");
#else
  if (backend != "lanes32") return measure(options);
#if SLM_HAS_LANES
  return measure_lanes32(options);
#else
  throw Error("cli.no-gpu", "expected an slm with the emulated GPU lanes32, found one that was built without tests",
              "Configure again with -DSLM_BUILD_TESTS=ON, and build");
#endif
#endif
}

void run_measurement(const MeasureCommand& command) {
  MeasureOptions options = command.options;
  std::erase(options.formats, "int4");
  if (options.formats.size() != command.options.formats.size()) {
    options.formats.insert(options.formats.end(), {"w4a16", "w4a8"});
  }
  if (!command.json.empty()) {
    options.keep = [&](const Report& report) { write_report(command.json, report); };
  }
  const Report report = measure_on(command.backend, options);
  if (report.results.empty() && report.failures.empty()) {
    throw Error("bench.nothing-measured", "--model and --format select no measurement of this backend",
                "Omit one of them; slm bench decode --help lists the choices");
  }
  const std::string tables = device_tables(report);
  std::cout << tables << std::flush;
  if (!command.markdown.empty()) write_text_file(command.markdown, tables);
  if (!report.failures.empty()) {
    throw Error("bench.failures",
                text("some measurements failed, ", report.failures.size(), " failed: ", report.failures.front()),
                "The report lists the failures and contains the other results");
  }
}

void add_measurement(CLI::App& bench, const char* name, const char* help, MeasureOptions::Table table) {
  CLI::App& command = *bench.add_subcommand(name, help);
  const auto given = std::make_shared<MeasureCommand>();
  given->options.table = table;
  given->backend = SLM_BENCH_BACKEND;
  command
      .add_option("--backend", given->backend,
                  "default: the backend of this build; lanes32: a dry run on a GPU emulated by the CPU, "
                  "whose times have no meaning")
      ->check(CLI::IsMember({SLM_BENCH_BACKEND, "lanes32"}))
      ->capture_default_str();
  std::vector<std::string> models = bench_models;
  if (table == MeasureOptions::Table::decode) models.insert(models.end(), named_models.begin(), named_models.end());
  command.add_option("--model", given->options.models, "measure only this shape; may be repeated")
      ->check(CLI::IsMember(models));
  command
      .add_option("--format", given->options.formats,
                  "measure only this format: bf16, int4 or one of its kinds w4a16, w4a8; may be repeated")
      ->check(CLI::IsMember({"bf16", "int4", "w4a16", "w4a8"}));
  command.add_option("--threads", given->options.threads, "CPU threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  cli::add_isa_option(command, given->options.isa);
  command.add_flag("--copy-weights", given->options.copy_weights,
                   "CPU: copy floating-point weights to huge pages instead of reading the mapped file");
  command
      .add_option_function<std::string>(
          "--activations",
          [given](const std::string& word) {
            using backend::DenseActivations;
            given->options.dense_activations = word == "bf16" ? DenseActivations::bf16 : DenseActivations::bf16x2;
          },
          "CPU with AMX or AVX512_BF16: rounding of activations beside bf16 weights; other CPUs do not round")
      ->check(CLI::IsMember({"bf16", "bf16x2"}));
  command.add_option("--device", given->options.device, "number of the GPU, from 0")
      ->check(CLI::Range(0, 99))
      ->capture_default_str();
  command.add_flag("--quick", given->options.quick, "measure fewer row counts, with fewer samples");
  if (table == MeasureOptions::Table::decode) {
    command
        .add_option("--file", given->options.files,
                    "measure this model folder or GGUF file as stored, instead of a shape; with --format w4a8, 8-bit "
                    "activations beside 4-bit weights; may be repeated")
        ->excludes("--model");
    command
        .add_option(
            "--sequences", given->options.sequences,
            "measure only steps of this many sequences, one token each: 1,8,32; beside n tokens of one sequence")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
  }
  command
      .add_option("--positions", given->options.positions,
                  table == MeasureOptions::Table::decode ? "tokens before the measured steps of one sequence; 0: a few"
                                                         : "tokens before the rows of attention; 0: 1024")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--cache-format", [given](const std::string& word) { given->options.cache_format = kv_format_named(word); },
          "storage of keys and values: f32, f16, bf16, int8; default: the backend's format")
      ->type_name("FORMAT");
  command.add_option("--json", given->json, "write the report to this file, for slm bench compare");
  command.add_option("--markdown", given->markdown, "write the tables to this file");
  command.callback([given] { run_measurement(*given); });
}

}  // namespace

void add_decode(CLI::App& bench) {
  add_measurement(bench, "decode", "Whole models: tokens/s, share of the memory bandwidth, cost of verification",
                  MeasureOptions::Table::decode);
}

void add_kernels(CLI::App& bench) {
  add_measurement(bench, "kernels", "Operations of a layer, one by one", MeasureOptions::Table::kernels);
}

}  // namespace slm::bench
