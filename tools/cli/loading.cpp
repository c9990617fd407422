#include "tools/cli/loading.hpp"

#include <algorithm>

#include "slm/backend/reference/reference.hpp"
#include "slm/io/checkpoint.hpp"
#include "tools/cli/emulated.hpp"
#include "tools/cli/gpu.hpp"
#include "tools/cli/isa_option.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/ranks.hpp"

namespace cli {

Loader::Loader(ModelOptions options) : options_(std::move(options)) {
  if (options_.draft_ranks > 0) set_draft_ranks(options_.draft_ranks);
}

slm::AnyModel Loader::load_draft(const std::string& folder, const slm::ModelInfo& target) {
  const slm::Checkpoint draft(folder);
  const bool is_one_stage = draft.config().layers < options_.pipeline || options_.draft_ranks > 0;
  return load(folder, options_.draft_backend.empty() ? options_.backend : options_.draft_backend,
              std::min(draft.settings().context, target.context), is_one_stage ? 1 : options_.pipeline, true);
}

slm::AnyModel Loader::load(const std::string& folder, const std::string& backend, int context, int pipeline,
                           bool drafts) {
  ProgressBar bar("loading " + folder);
  slm::LoadOptions options;
  options.context = context;
  options.cache_format = options_.cache_format;
  options.progress = [&bar](double share) { bar(share); };
  // Kernels do not depend on a model's shape. The program runs every shape as Dynamic, without a list of known ones,
  // and compiles in a fraction of the time; example-generate shows slm::load with the list.
  const bool on_gpu = backend.starts_with("gpu"), on_draft_ranks = drafts && options_.draft_ranks > 0;
  // A draft on another device than the target's is the first rank's alone, unless it has ranks of its own.
  const bool on_ranks = rank_count() > 1 && (!drafts || on_draft_ranks || backend == options_.backend);
  if (on_ranks && !on_gpu && backend != "cpu") {
    throw slm::Error("ranks.backend", slm::text("the backend ", backend, " was asked for on several ranks"),
                     "Several ranks compute with --backend cpu or gpu; start slm alone for another");
  }
  if (rank_count() == 1 && pipeline > 1) {
    throw slm::Error("ranks.pipeline", slm::text("one rank was asked to be ", pipeline, " stages"),
                     "Start slm by mpirun or srun with at least as many ranks, or leave out --pipeline");
  }
  if (rank_count() == 1 && options_.fast_reduce) {
    throw slm::Error("ranks.fast-reduce", "one rank was asked to add up parts of sums",
                     "Start slm by mpirun or srun with several ranks, or leave out --fast-reduce");
  }
  if (backend == "reference") return slm::load(folder, slm::backend::Reference{}, options);
  if (backend.starts_with("lanes")) return load_emulated(folder, backend, options);
  slm::backend::CpuOptions cpu = options_.cpu;
  const bool has_threads = drafts && options_.draft_threads > 0;
  if (has_threads) cpu.threads = options_.draft_threads;
  if (on_ranks) {
    RankDevice device{.cpu = cpu};
    if (on_gpu) device.first_gpu = number_of_gpu(backend);
    return on_draft_ranks
               ? load_on_draft_ranks(folder, device, options, options_.fast_reduce && options_.draft_ranks > 1)
               : load_on_ranks(folder, device, options, pipeline, options_.fast_reduce);
  }
  if (on_gpu) return load_on_gpu(folder, number_of_gpu(backend), options);
  std::optional<slm::backend::Cpu>& device = has_threads ? draft_cpu_ : cpu_;
  if (!device) device.emplace(cpu);
  return slm::load(folder, *device, options);
}

void add_draft_options(CLI::App& command, ModelOptions& options, CLI::Option& draft) {
  command.add_option("--draft-backend", options.draft_backend, "where the draft runs; else as --backend")
      ->check(backend_name());
  command
      .add_option("--draft-threads", options.draft_threads,
                  "threads of the draft's own, which drafts on while the target verifies; 0: it uses the target's")
      ->needs(&draft)
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--draft-ranks", options.draft_ranks,
                  "the last so many ranks hold the draft, which drafts on while the others verify; 0: all hold both")
      ->needs(&draft)
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
}

void add_cache_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--context", options.context,
                  "tokens that a model holds at once, prompt and answer: fewer need less memory; 0: as many as it was "
                  "trained for")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--cache-format", [&options](const std::string& name) { options.cache_format = slm::kv_format_named(name); },
          "how the KV cache stores keys and values: f32, f16, bf16, or int8 with a scale for each head and position; "
          "without it f32, on a GPU f16")
      ->type_name("FORMAT");
}

namespace {

void round_activations(slm::backend::CpuOptions& cpu, const std::string& word) {
  using slm::backend::DenseActivations, slm::backend::Int4Activations;
  if (word == "bf16" || word == "bf16x2") {
    cpu.dense_activations = word == "bf16" ? DenseActivations::bf16 : DenseActivations::bf16x2;
  } else {
    cpu.activations = word == "8" ? Int4Activations::bits8 : Int4Activations::bits16;
  }
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  slm::backend::CpuOptions& cpu = options.cpu;
  command
      .add_option("--backend", options.backend,
                  "where the model runs: cpu, gpu (gpu:1 is the second one), reference (plain loops, slow), or lanes32 "
                  "and lanes64 (GPU kernels, emulated)")
      ->check(backend_name())
      ->capture_default_str();
  add_cache_options(command, options);
  command.add_option("--threads", cpu.threads, "threads of the cpu backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_isa_option(command, cpu.isa);
  command.add_flag(
      "--copy-weights", cpu.copy_weights,
      "copies weights of floating point into huge pages on the cpu backend: loading takes longer and needs "
      "memory of its own, decoding is faster");
  command
      .add_option_function<std::vector<std::string>>(
          "--activations",
          [&cpu](const std::vector<std::string>& words) {
            for (const std::string& word : words) round_activations(cpu, word);
          },
          "what activations are rounded to on the cpu backend: beside four-bit weights to 16 bits, or 8, which is less "
          "exact, and faster at verifying where the processor has no AMX; beside bf16 weights not at all, or with AMX "
          "or AVX512_BF16 to bf16 or the sum of two (bf16x2), which is less exact, and with AMX faster at prompts; may "
          "be repeated")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"8", "16", "bf16", "bf16x2"}))
      ->default_str("16");
  command
      .add_option("--pipeline", options.pipeline,
                  "stages of layers that several ranks make, of as many ranks each; 1: all ranks share out all layers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_flag("--fast-reduce", options.fast_reduce,
                   "several ranks add up parts of sums, which spares half of what they gather in a layer; the last "
                   "digits of logits then depend on the number of ranks");
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
