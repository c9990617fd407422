#include "tools/cli/loading.hpp"

#include "tools/cli/emulated.hpp"
#include "tools/cli/gpu.hpp"
#include "tools/cli/progress.hpp"

namespace cli {

slm::AnyModel Loader::load(const std::string& folder, const std::string& backend) {
  ProgressBar bar("loading " + folder);
  slm::LoadOptions options;
  options.progress = [&bar](double share) { bar(share); };
  // Kernels do not depend on a model's shape. The program runs every shape as Dynamic, without a list of known ones,
  // and compiles in a fraction of the time; example-generate shows slm::load with the list.
  if (backend == "reference") return slm::load<slm::Registry<>>(folder, slm::backend::Reference{}, options);
  if (backend.starts_with("lanes")) return load_emulated(folder, backend, options);
  if (backend.starts_with("gpu")) {
    return load_on_gpu(folder, number_of_gpu(backend), options);
  }
  if (!cpu_) cpu_.emplace(options_);
  return slm::load<slm::Registry<>>(folder, *cpu_, options);
}

void add_backend_options(CLI::App& command, std::string& backend, slm::backend::CpuOptions& cpu) {
  command
      .add_option("--backend", backend,
                  "where the model runs: cpu, gpu (gpu:1 is the second one), reference (plain loops, slow), or lanes32 "
                  "and lanes64 (GPU kernels, emulated)")
      ->check(backend_name())
      ->capture_default_str();
  command.add_option("--threads", cpu.threads, "threads of the cpu backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_flag(
      "--copy-weights", cpu.copy_weights,
      "copies weights of floating point into huge pages on the cpu backend: loading takes longer and needs "
      "memory of its own, decoding is faster");
  using slm::backend::Int4Activations;
  command
      .add_option_function<int>(
          "--activations",
          [&cpu](int bits) { cpu.activations = bits == 8 ? Int4Activations::bits8 : Int4Activations::bits16; },
          "bits of activations beside four-bit weights on the cpu backend: 16, or 8, which is less exact, and faster "
          "at "
          "verifying where the processor has no AMX")
      ->check(CLI::IsMember({8, 16}))
      ->default_str("16");
}

CLI::Validator backend_name() {
  const auto second_gpu = [](const std::string& name) {  // gpu:0 to gpu:99
    const std::string number = name.starts_with("gpu:") ? name.substr(4) : "";
    const bool sound = number.size() == 1 || number.size() == 2;
    return sound && number.find_first_not_of("0123456789") == std::string::npos ? std::string{} : "no number of a GPU";
  };
  return CLI::IsMember({"cpu", "gpu", "reference", "lanes32", "lanes64"}) | CLI::Validator(second_gpu, "gpu:N", "");
}

}  // namespace cli
