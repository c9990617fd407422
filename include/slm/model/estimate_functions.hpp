// The functions of estimate.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "slm/backend/cpu/code_matrix.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/core/error.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/model/block_inputs.hpp"
#include "slm/model/estimate.hpp"
#include "slm/model/latent_weights.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/page_pool.hpp"
#include "slm/model/rope.hpp"
#include "slm/model/stored_rows.hpp"
#include "slm/model/stored_type.hpp"

namespace slm { inline namespace v0_1 {
namespace detail {

/// Adds up a model's weights as ModelWeights holds them on the CPU.
class WeightBytes {
 public:
  WeightBytes(const Checkpoint& checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint),
        options_(options),
        packs_(has_int4_layers(checkpoint) || has_scaled_layers(checkpoint) || has_blocks(checkpoint)),
        type_(dtype_of(stored_type(checkpoint))) {
    checkpoint.names().for_each([&](Role role, int, const auto& weights, const auto& biases) {
      for (const TensorName& bias : biases) add_vector(bias);
      if (weights.empty() || (is_optional(role) && !checkpoint.has(weights.front().name))) return;
      add(role, weights);
    });
    if (checkpoint.config().positions == Positions::rope) {
      all += page_of(unwindowed_rotary_dim(checkpoint.config(), checkpoint.settings()) * 2);
      if (checkpoint.settings().has_two_ropes()) all += page_of(checkpoint.config().rotary_dim() * 2);
    }
  }

  std::int64_t all = 0, mapped = 0, step = 0;

 private:
  static constexpr std::int64_t page = 4096;  // vectors begin at pages

  static std::int64_t page_of(std::int64_t bytes) { return (bytes + page - 1) / page * page; }

  static DType dtype_of(WeightType type) {
    return type == WeightType::f16 ? DType::f16 : type == WeightType::bf16 ? DType::bf16 : DType::f32;
  }

  void add(Role role, std::span<const TensorName> weights) {
    const ModelConfig& shape = checkpoint_.config();
    switch (role) {
      case Role::positions:
        if (shape.embedding == 0) return add_vector(weights.front());
        matrix(role, weights);
        return;
      case Role::embedding: {
        const std::int64_t bytes = matrix(role, weights);
        step += bytes / shape.vocab;
        if (!checkpoint_.settings().tied_embeddings) return;
        if (part_of_head() == shape.vocab) {
          step += bytes;
          return;
        }
        const std::int64_t before = all, in_file = mapped;
        step += matrix(role, weights, part_of_head());
        if (mapped != in_file) all = before, mapped = in_file;  // the bytes of the embedding
        return;
      }
      case Role::input_table: step += matrix(role, weights) / shape.input_rows(); return;
      case Role::stream_in:
      case Role::stream_out:
        for (std::size_t i = 0; i < weights.size(); ++i) step += matrix(role, weights.subspan(i, 1));
        return;
      case Role::layer_factor: return;
      case Role::head: step += matrix(role, weights, part_of_head()); return;
      case Role::qkv: {
        step += matrix(role, weights);
        if (shape.attention_gate)
          step += matrix(role, weights.first(1), std::int64_t{shape.heads} * shape.head_dim, true);
        return;
      }
      case Role::experts_up:
      case Role::experts_down: {
        const auto experts = static_cast<std::size_t>(shape.mixture.experts);
        const std::size_t parts = weights.size() / experts;
        const Role like = role == Role::experts_up ? Role::gate_up : Role::down;
        for (std::size_t e = 0; e < experts; ++e) chosen_ += matrix(like, weights.subspan(e * parts, parts));
        if (role == Role::experts_up) return;  // the layer's other experts' matrices follow
        step += chosen_ / shape.mixture.experts * shape.mixture.chosen;
        chosen_ = 0;
        return;
      }
      case Role::shared_up: step += matrix(Role::gate_up, weights); return;
      case Role::shared_down: step += matrix(Role::down, weights); return;
      case Role::latent_heads: step += latent_heads(weights); return;
      case Role::router:
      case Role::stream_router:
      case Role::stream_prediction:
      case Role::stream_correction:
      case Role::shared_gate: step += floats(weights.front()); return;
      default: break;
    }
    if (is_linear(role)) {
      step += matrix(role, weights);
    } else {
      for (const TensorName& weight : weights) add_vector(weight);
    }
  }

  std::int64_t part_of_head() const {
    return options_.head_tokens == 0 ? checkpoint_.config().vocab : options_.head_tokens;
  }

  void add_vector(const TensorName& name) {
    if (const Tensor* tensor = checkpoint_.find(name.name)) all += page_of(tensor->elements() * 4);
  }

  /// A matrix that is kept in fp32.
  std::int64_t floats(const TensorName& name) {
    const Tensor& tensor = checkpoint_.tensor(name.name, name.shape);
    return count(tensor.elements() * 4, tensor.dtype == DType::f32 && !packs_);
  }

  /// Tensors that are packed as one matrix. rows: those of each that are packed; 0: see stored_rows(). some_rows:
  /// they are not the first ones.
  std::int64_t matrix(Role role, std::span<const TensorName> weights, std::int64_t rows = 0, bool some_rows = false) {
    std::vector<LinearSource> sources;
    bool in_file = true;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      LinearSource source = packable_shape(weights[i], in_file);
      const std::size_t some = some_rows ? 1 : stored_rows(checkpoint_, role, i).size();
      if (some != 0 || checkpoint_.names().is_grouped(weights[i])) in_file = false;
      const std::int64_t kept = rows != 0 ? rows : static_cast<std::int64_t>(some);
      if (kept != 0) set_rows(source, kept);
      sources.push_back(converted(std::move(source), in_file));
    }
    return packed(sources, in_file);
  }

  /// The matrices of the heads of latent attention.
  std::int64_t latent_heads(std::span<const TensorName> weights) {
    const ModelConfig& shape = checkpoint_.config();
    std::int64_t bytes = 0;
    const auto add = [&](Tensor tensor, bool in_file) {
      const LinearSource sources[] = {converted(std::move(tensor), in_file)};
      bytes += packed(sources, in_file);
    };
    if (weights.size() == 2) {
      for (const TensorName& heads : weights) add(stacked_heads(checkpoint_, heads), true);
      return bytes;
    }
    bool in_file = false;
    const DType type = type_of_keys(packable_shape(weights.front(), in_file));
    add({.name = {}, .dtype = type, .shape = {std::int64_t{shape.heads} * shape.latent.rank, shape.latent.unrotated}},
        false);
    return bytes + matrix(Role::latent_heads, weights, std::int64_t{shape.heads} * shape.latent.value, true);
  }

  /// A packed matrix.
  std::int64_t packed(std::span<const LinearSource> sources, bool in_file) {
    if (backend::cpu::CodeMatrix::can_hold(sources)) return count(backend::cpu::CodeMatrix::bytes_of(sources), false);
    const auto type_of = [](const LinearSource& source) {
      const auto* tensor = std::get_if<Tensor>(&source);
      const bool floats = tensor != nullptr && is_floating_point(tensor->dtype);
      return floats ? tensor->dtype : DType::f32;
    };
    DType held = type_of(sources.front());
    std::int64_t elements = 0;
    for (const LinearSource& source : sources) {
      if (type_of(source) != held || !std::holds_alternative<Tensor>(source)) held = DType::f32, in_file = false;
      elements += out_features(source) * in_features(source);
    }
    return count(elements * static_cast<std::int64_t>(slm::bytes_of(held)), in_file && !packs_);
  }

  static void set_rows(LinearSource& source, std::int64_t rows) {
    if (auto* int4 = std::get_if<Int4Tensor>(&source)) {
      int4->out = rows;
    } else {
      std::get<Tensor>(source).shape.front() = rows;
    }
  }

  std::int64_t count(std::int64_t bytes, bool in_file) {
    all += bytes;
    if (in_file) mapped += bytes;
    return bytes;
  }

  /// The form in which WeightReader passes a matrix to the backend, without its bytes if they are not in the file.
  LinearSource packable_shape(const TensorName& weight, bool& in_file) const {
    const auto copy = [&](DType type) {
      in_file = false;
      const bool turned = weight.transposed;
      const std::int64_t out = weight.shape.at(turned ? 1 : 0), in = weight.shape.at(turned ? 0 : 1);
      return Tensor{.name = weight.name, .dtype = type, .shape = {out, in}};
    };
    if (is_stored_transposed(checkpoint_, weight)) return copy(DType::f32);
    if (checkpoint_.has(weight.module() + ".weight_blocks")) return copy(DType::mxfp4);
    const StoredLinear stored = linear_source(checkpoint_, weight);
    if (const auto* scaled = std::get_if<ScaledTensor>(&stored)) {
      return copy(fits_q8_0(*scaled, ScaledReader(*scaled)) ? DType::q8_0 : DType::f32);
    }
    if (const auto* int4 = std::get_if<Int4Tensor>(&stored)) return *int4;
    return std::get<Tensor>(stored);
  }

  /// After LoadOptions::bits, or the conversion of floating-point models to one type.
  LinearSource converted(LinearSource source, bool& in_file) const {
    auto* const tensor = std::get_if<Tensor>(&source);
    if (tensor == nullptr || is_blocked(tensor->dtype)) return source;
    if (options_.bits != 0) {
      const DType type = options_.bits == 4 ? DType::q4_0 : DType::q8_0;
      if (tensor->shape.back() % values_of_block(type) == 0) tensor->dtype = type;
    } else if (!packs_ && tensor->dtype != type_) {
      tensor->dtype = type_;
      in_file = false;
    }
    return source;
  }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  bool packs_;  // some weights are codes: the others are copied beside them
  DType type_;  // of the matrices if none are codes
  std::int64_t chosen_ = 0;
};

/// Activations of a step of `rows` rows on the CPU, and the threads' scratch memory.
inline std::int64_t scratch_bytes(const ModelConfig& shape, const ModelSettings& settings, KvFormat format,
                                  std::int64_t rows) {
  const BufferWidths widths = buffer_widths(shape, settings);
  const std::int64_t width = shape.most_queries(), hidden = shape.hidden;
  const std::int64_t inner = shape.mixer.kind != MixerKind::none ? shape.mixer.inner() : 0;
  const std::int64_t packed = std::max({width, widths.gated, hidden, inner});
  const std::int64_t inputs = std::int64_t{shape.shapes.inputs} * shape.layers;
  std::int64_t floats = hidden + widths.queries + std::max(widths.mixed, inputs) + widths.gated + packed;
  floats += inputs + shape.streams.count * hidden + shape.rotary_dim() + shape.embedding;
  floats += std::max(inner, norms_outputs(shape.order) ? hidden : 0);
  const bool in_two_passes = shape.rotary_dim() != shape.head_dim || shape.rotates_pairs ||
                             shape.qk_norm != QkNorm::none || format == KvFormat::int8;  // see CpuStep::qkv
  std::int64_t keys = 0;                                                                 // of the widest layer
  for (int layer = 0; layer < shape.layers; ++layer)
    keys = std::max(keys, std::int64_t{shape.kv_heads_of(layer)} * shape.head_dim_of(layer));
  if (in_two_passes && !shape.is_latent()) floats += width + 2 * keys;
  if (const MixtureConfig& mixture = shape.mixture; mixture.experts != 0) {
    const std::int64_t places = mixture.chosen + (mixture.shared_ffn != 0 ? 1 : 0);
    const std::int64_t widest = std::max(mixture.ffn, mixture.shared_ffn);
    floats += hidden + mixture.experts + places * (hidden + widest + std::max(hidden, widest));
  }
  constexpr std::int64_t tile = 128;  // floats of a thread's results, for each row
  return 4 * rows * (floats + tile * usable_cores());
}

/// Throws like loading a draft model with these options.
inline void check_draft_options(const Checkpoint& draft, const LoadOptions& loading) {
  const auto check = [&](bool holds, std::string_view id, std::string_view range, int found) {
    if (holds) return;
    throw Error(id, text("'", draft.folder().string(), "': expected ", range, ", found ", found),
                "Pass the options that load() takes for this model");
  };
  check(loading.bits == 0 || loading.bits == 4 || loading.bits == 8, "model.bits", "weights of 0, 4 or 8 bits",
        loading.bits);
  check(loading.head_tokens >= 0 && loading.head_tokens <= draft.config().vocab, "model.head-tokens",
        "head_tokens of 0 to the size of the vocabulary", loading.head_tokens);
}

/// The estimate with one more model.
inline MemoryEstimate with_model(MemoryEstimate to, const Checkpoint& checkpoint, const EstimateOptions& options,
                                 const LoadOptions& loading) {
  const int most = checkpoint.settings().context;  // a draft model may have a smaller context
  const int context = options.context == 0 ? most : std::min(options.context, most);
  const auto sequences = static_cast<std::int64_t>(options.sequences);
  const WeightBytes weights(checkpoint, loading);
  const KvFormat format = options.kv_format.value_or(backend::Cpu::kv_formats[0]);
  const KvLayout layout(checkpoint.config(), checkpoint.settings(), format);
  to.weights += static_cast<std::uint64_t>(weights.all);
  to.mapped += static_cast<std::uint64_t>(weights.mapped);
  to.cache += static_cast<std::uint64_t>(sequences) * layout.bytes_of(context);
  const std::int64_t rows = std::min<std::int64_t>(backend::Cpu::max_rows, sequences * context);
  const std::int64_t logits = 4 * sequences * checkpoint.config().vocab;
  to.scratch +=
      static_cast<std::uint64_t>(scratch_bytes(checkpoint.config(), checkpoint.settings(), format, rows) + logits);
  if (to.step_bytes == 0) to.step_bytes = static_cast<std::uint64_t>(weights.step);
  return to;
}

}  // namespace detail

SLM_INLINE MemoryEstimate estimate(const Checkpoint& model, const EstimateOptions& options) {
  if (options.sequences < 0 || options.context < 0) {
    throw Error(
        "estimate.sequences",
        text("expected sequences and context of 0 or more, found ", options.sequences, " and ", options.context),
        "Pass numbers of 0 or more");
  }
  if (options.context > model.settings().context) {
    throw Error("model.context",
                text("'", model.folder().string(), "': a context of ", options.context,
                     " tokens exceeds the limit of config.json, ", model.settings().context),
                text("Give 1..", model.settings().context, ", or 0 for the maximum"));
  }
  MemoryEstimate all = detail::with_model({}, model, options, {});
  if (!options.draft.empty()) {
    const LoadOptions loading{.head_tokens = options.draft_head_tokens, .bits = options.draft_bits};
    const Checkpoint draft(options.draft);
    detail::check_draft_options(draft, loading);
    all = detail::with_model(all, draft, options, loading);
  }
  return all;
}

SLM_INLINE MemoryEstimate estimate(const std::filesystem::path& model, const EstimateOptions& options) {
  return estimate(Checkpoint(model), options);
}

}}
