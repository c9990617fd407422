#include "tools/cli/loading.hpp"

#include <algorithm>

#include "slm/backend/reference/reference.hpp"
#include "slm/core/os/path.hpp"
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
  const slm::Checkpoint draft(slm::path_of(folder));
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
  if (drafts) options.head_tokens = options_.draft_head, options.bits = options_.draft_bits;
  options.progress = [&](double share) {
    bar(share);
    if (options_.check) options_.check();
  };
  // Kernels do not depend on a model's shape. The program runs every shape as Dynamic, which compiles faster than a
  // list of static shapes; example-generate shows slm::load with the list.
  const bool on_gpu = backend.starts_with("gpu"), on_draft_ranks = drafts && options_.draft_ranks > 0;
  // A draft on another device than the target's is loaded on rank 0 only, unless it has its own ranks.
  const bool on_ranks = rank_count() > 1 && (!drafts || on_draft_ranks || backend == options_.backend);
  if (on_ranks && !on_gpu && backend != "cpu") {
    throw slm::Error("ranks.backend", slm::text("expected the backend cpu or gpu on several ranks, found ", backend),
                     "Use --backend cpu or gpu, or start slm without a launcher");
  }
  if (rank_count() == 1 && pipeline > 1) {
    throw slm::Error(
        "ranks.pipeline",
        slm::text("expected at least one rank per pipeline stage, found one rank for ", pipeline, " stages"),
        "Start slm with mpirun or srun and at least as many ranks, or omit --pipeline");
  }
  if (rank_count() == 1 && options_.fast_reduce) {
    throw slm::Error("ranks.fast-reduce", "expected several ranks for --fast-reduce, found one rank",
                     "Start slm with mpirun or srun and several ranks, or omit --fast-reduce");
  }
  if (backend == "reference") return slm::load(slm::path_of(folder), slm::backend::Reference{}, options);
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
  return slm::load(slm::path_of(folder), *device, options);
}

void add_draft_weight_options(CLI::App& command, ModelOptions& options, CLI::Option* draft) {
  command.add_option("--draft-backend", options.draft_backend, "backend of the draft; default: --backend")
      ->check(backend_name());
  auto* head = command.add_option(
      "--draft-head", options.draft_head,
      "the draft proposes only tokens with ids below N and tokens of the text, which costs less of its head; "
      "0: all");
  head->check(CLI::Range(0, 1 << 24))->capture_default_str();
  auto* bits = command.add_option(
      "--draft-bits", options.draft_bits,
      "4 or 8: round the draft's weights of more bits during loading, so that a draft token reads fewer "
      "bytes; 0: as stored");
  bits->check(CLI::IsMember({0, 4, 8}))->capture_default_str();
  if (draft != nullptr) head->needs(draft), bits->needs(draft);
}

void add_draft_options(CLI::App& command, ModelOptions& options, CLI::Option& draft) {
  add_draft_weight_options(command, options, &draft);
  command
      .add_option("--draft-threads", options.draft_threads,
                  "dedicated draft threads; drafting overlaps verification; 0: use the target's threads")
      ->needs(&draft)
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option(
          "--draft-ranks", options.draft_ranks,
          "number of last ranks that hold the draft only; drafting overlaps verification; 0: all ranks hold both")
      ->needs(&draft)
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
}

void add_cache_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--context", options.context,
                  "maximum tokens of prompt and answer; less needs less memory; 0: the model's limit")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--cache-format", [&options](const std::string& name) { options.cache_format = slm::kv_format_named(name); },
          "KV cache format: f32, f16, bf16, or int8 with one scale per head and position; default: f32, on a GPU f16")
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
                  "backend: cpu, gpu (gpu:1: the second GPU), reference (plain loops, slow), or lanes32 and lanes64 "
                  "(emulated GPUs)")
      ->check(backend_name())
      ->capture_default_str();
  add_cache_options(command, options);
  command.add_option("--threads", cpu.threads, "threads of the cpu backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_isa_option(command, cpu.isa);
  command.add_flag(
      "--copy-weights", cpu.copy_weights,
      "copy floating-point weights into huge pages on the cpu backend: slower loading, more memory, faster decoding");
  command
      .add_option_function<std::vector<std::string>>(
          "--activations",
          [&cpu](const std::vector<std::string>& words) {
            for (const std::string& word : words) round_activations(cpu, word);
          },
          "rounding of activations on the cpu backend. 16 or 8: bits for products with quantized weights; 8 is less "
          "exact, but faster at verification without AMX. bf16 or bf16x2 (sum of two): for products with bf16 weights "
          "on processors with AMX or AVX512_BF16; less exact, but with AMX faster at prompts; default: no rounding. "
          "May be repeated")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"8", "16", "bf16", "bf16x2"}))
      ->default_str("16");
  command
      .add_option("--pipeline", options.pipeline,
                  "number of pipeline stages, with equally many ranks each; 1: all ranks share every layer")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_flag("--fast-reduce", options.fast_reduce,
                   "reduce partial sums over ranks instead of gathering half of the activations; the last digits of "
                   "logits then depend on the number of ranks");
}

CLI::Validator backend_name() {
  const auto second_gpu = [](const std::string& name) {  // gpu:0 to gpu:99
    const std::string number = name.starts_with("gpu:") ? name.substr(4) : "";
    const bool sound = number.size() == 1 || number.size() == 2;
    return sound && number.find_first_not_of("0123456789") == std::string::npos ? std::string{}
                                                                                : "expected a GPU index of 0 to 99";
  };
  return CLI::IsMember({"cpu", "gpu", "reference", "lanes32", "lanes64"}) | CLI::Validator(second_gpu, "gpu:N", "");
}

}  // namespace cli
