// ModelState: data shared by the copies of a model. run_blocks: the pass through all blocks of a config.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "slm/config/registry.hpp"
#include "slm/core/checksum.hpp"
#include "slm/core/error.hpp"
#include "slm/core/float_environment.hpp"
#include "slm/core/free_memory.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/path_name.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/model/adapter_reader.hpp"
#include "slm/model/block.hpp"
#include "slm/model/device_memory.hpp"
#include "slm/model/kv_memory.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/model_digest.hpp"
#include "slm/model/paged_sequence.hpp"
#include "slm/model/planner.hpp"
#include "slm/model/weights.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Data shared by the copies of a model. The class does not depend on the shape, so it compiles once per format and
/// backend.
template <WeightFormat Format, Backend B>
struct ModelState {
  using Step = decltype(std::declval<B&>().begin(std::declval<const StepPlan&>()));

  ModelState(std::shared_ptr<const Checkpoint> checkpoint, B backend, const LoadOptions& options)
      : device(std::move(backend)),
        layout(layout_of(checkpoint, options)),
        context(context_of(*checkpoint, options, layout, device)),
        weights(std::move(checkpoint), device, options) {
    const Checkpoint& source = *weights.checkpoint;
    const ModelSettings& settings = source.settings();
    const ModelConfig& shape = source.config();
    info = {.name = name_of_path(source.folder()),
            .vocab = shape.vocab,
            .context = context,
            .end_tokens = settings.end_tokens,
            .sampling = settings.sampling,
            .tokens = vocabulary_reader(source.folder(), shape.vocab),
            .step_bytes = weights.step_bytes,
            .chooses = B::chooses,
            .headless = settings.headless,
            .own_memory = B::own_memory,
            .identity = layout.identity(),
            .read_adapter =
                [checkpoint = weights.checkpoint, on = device](const std::filesystem::path& folder) mutable {
                  Adapter adapter = read_adapter_folder(folder, *checkpoint, host_memory_of(on));
                  adapter.model = checkpoint;
                  return std::make_shared<const Adapter>(std::move(adapter));
                },
            .place_adapter =
                [checkpoint = weights.checkpoint, identity = layout.identity(), on = device,
                 name = name_of_path(source.folder())](const AdapterRef& adapter) mutable {
                  if (adapter == nullptr || adapter->model == identity) return adapter;
                  if (adapter->model != checkpoint) throw other_model(*adapter, name);
                  Adapter placed = on.place(*adapter);
                  placed.model = identity;
                  return AdapterRef(std::make_shared<const Adapter>(std::move(placed)));
                }};
    if (weights.head_tokens != 0) info.read_adapter = nullptr, info.place_adapter = nullptr;  // they change whole heads
    limits.max_rows = B::max_rows;
    if constexpr (B::chooses) limits.max_chained_rows = B::max_chained_rows;
    limits.original_context = settings.rope_scaling.kind == RopeScaling::Kind::longrope
                                  ? static_cast<int>(settings.rope_scaling.original_context)
                                  : std::numeric_limits<int>::max();
    if constexpr (HasDeviceMemory<B>) {
      device.reserve(widest_heads(shape), widest_activations(shape, settings), shape.vocab, context,
                     mixture_widths(shape));
    }
  }

  static KvLayout layout_of(const std::shared_ptr<const Checkpoint>& checkpoint, const LoadOptions& options) {
    if constexpr (!RecurrentStep<Step>) {
      if (checkpoint->config().is_hybrid()) {
        throw Error("model.recurrent-layers",
                    text("'", checkpoint->folder().string(), "' has recurrent layers, which the backend ", B::name,
                         " does not compute"),
                    "Load it on the backend cpu");
      }
    }
    const ModelConfig& shape = checkpoint->config();
    std::string_view missing;
    if (!ShapesLayers<Step> && !shape.is_uniform()) missing = "layers of different shapes";
    if (!MixesStreams<B> && shape.has_streams()) missing = "several residual streams";
    if (!AttendsLatents<B> && shape.is_latent()) missing = "latent attention";
    if (!missing.empty()) {
      throw Error("model.layer-shapes",
                  text("'", checkpoint->folder().string(), "' has ", missing, ", which the backend ", B::name,
                       " does not compute"),
                  "Load it on the backend cpu");
    }
    // Another weight type or backend computes different keys and values.
    const std::string_view type = name_of(weight_type<Format>(options.weights));
    const auto digest = std::async(std::launch::deferred, [checkpoint, type] {
                          Checksum sum;
                          sum.add(model_digest(*checkpoint));
                          for (const std::string_view part : {std::string_view(B::name), type})
                            sum.add(std::as_bytes(std::span(part)));
                          return sum.value();
                        }).share();
    return {checkpoint->config(),
            checkpoint->settings(),
            held_format(options.cache_format.value_or(B::kv_formats[0])),
            {.name = name_of_path(checkpoint->folder()),
             .vocab = checkpoint->config().vocab,
             .context = options.context == 0 ? checkpoint->settings().context : options.context,
             .digest = digest}};
  }

  static int context_of(const Checkpoint& checkpoint, const LoadOptions& options,
                        [[maybe_unused]] const KvLayout& layout, [[maybe_unused]] const B& device) {
    const int trained = checkpoint.settings().context;
    if (options.context < 0 || options.context > trained) {
      throw Error("model.context",
                  text("'", checkpoint.folder().string(), "': a context of ", options.context,
                       " tokens exceeds the limit of config.json, ", trained),
                  text("Give 1..", trained, " (LoadOptions::context, --context), or 0 for the maximum"));
    }
    const int context = options.context == 0 ? trained : options.context;
    if constexpr (HasDeviceMemory<B>)
      check_device_memory(checkpoint, weight_type<Format>(options.weights), layout, context, device);
    return context;
  }

  /// The type's name in the digest of a model.
  static std::string_view name_of(WeightType type) {
    switch (type) {
      case WeightType::f32: return Fp32::name;
      case WeightType::f16: return Fp16::name;
      case WeightType::bf16: return Bf16::name;
      default: return AwqInt4<>::name;
    }
  }

  /// Throws cache.format unless the backend supports the format.
  static KvFormat held_format(KvFormat format) {
    std::string held;
    for (const KvFormat known : B::kv_formats) {
      if (known == format) return format;
      held += text(held.empty() ? "" : ", ", slm::name_of(known));
    }
    throw Error("cache.format",
                text("the backend ", B::name, " does not support KV cache format ", slm::name_of(format)),
                text("Use one of: ", held, " (LoadOptions::cache_format, KvPoolOptions::format, --cache-format)"));
  }

  KvPool make_pool(KvPoolOptions options) const {
    if (const int kind = layout.state_kind(); kind >= 0 && options.memory != 0) {
      const std::size_t states = 2 * layout.page_bytes(kind);  // a step reads one and writes another
      if (options.memory < states) {
        throw Error(
            "cache.states",
            text("a sequence of '", info.name, "' needs ", text_of_bytes(states),
                 " for the states of its recurrent layers, found a KV cache of ", text_of_bytes(options.memory)),
            "Increase the KV cache memory (KvPoolOptions::memory, --cache-memory)");
      }
    }
    if constexpr (!B::own_memory) {  // where unlimited allocation would exhaust the host's memory
      if (options.memory == 0) options.memory = usual_budget(2);
    }
    return KvPool(
        std::make_shared<const PagedCache>(PagePool(layout.in(held_format(options.format.value_or(layout.format()))),
                                                    std::make_unique<KvMemoryOf<B>>(device), options)));
  }

  /// The model's default pool, created on first use.
  KvPool own_pool() const {
    const std::lock_guard lock(mutex);
    if (!pool) pool = make_pool({});
    return pool;
  }

  /// Throws io.file-changed if a step may have read missing bytes of the file.
  void check_unchanged() const {
    if (weights.in_file) weights.checkpoint->check_unchanged();
  }

  BlockSettings block(int layer) const {
    const PositionTables tables{
        .inverse_frequency = {data_or_null(weights.inverse_frequency[0]), data_or_null(weights.inverse_frequency[1])},
        .windowed_frequency = data_or_null(weights.windowed_frequency),
        .slopes = data_or_null(weights.alibi)};
    return block_settings(weights.checkpoint->config(), weights.checkpoint->settings(), layer, tables);
  }

  mutable B device;
  KvLayout layout;
  int context;
  ModelWeights<Format, B> weights;
  ModelInfo info;
  PlanLimits limits;
  mutable typename B::Recorded recorded;  // owned by the thread that has begun a step on the device
  mutable std::mutex mutex;               // guards the members below
  mutable KvPool pool;
};

/// Runs the rows of a step through all blocks.
template <WeightFormat Format, Backend B>
using RunBlocks = void (*)(const ModelState<Format, B>&,
                           decltype(std::declval<B&>().begin(std::declval<const StepPlan&>()))&, const KvLayout&,
                           const Activations<B>&);

/// RunBlocks of a config: the only code compiled per config.
template <Config Shape, WeightFormat Format, Backend B, class Step>
void run_blocks(const ModelState<Format, B>& state, Step& step, const KvLayout& layout, const Activations<B>& rows) {
  const Shape config = [&] {
    if constexpr (StaticConfig<Shape>) {
      return Shape{};
    } else {
      return Shape{state.weights.checkpoint->config()};
    }
  }();
  const int layers = config.value.layers;
  for (int l = 0; l < layers; ++l)
    run_block<B>(step, config, state.weights.layers[static_cast<std::size_t>(l)], state.block(l), layout.layer(l),
                 rows);
}

/// Loads the weights. Conversions use the same floating-point mode as a step.
template <WeightFormat Format, Backend B>
std::shared_ptr<const ModelState<Format, B>> make_state(std::shared_ptr<const Checkpoint> checkpoint, B device,
                                                        const LoadOptions& options) {
  const FloatEnvironment environment;
  const BusErrorsTaken taken;
  check_mixture<B>(*checkpoint);
  return std::make_shared<const ModelState<Format, B>>(std::move(checkpoint), std::move(device), options);
}

}}}
