// Model: a Llama-family transformer of a compile-time config, a weight format and a backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/core/error.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/block.hpp"
#include "slm/model/kv_cache.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/weights.hpp"
#include "slm/quant/format.hpp"

namespace slm {

/// How to store the weights in memory.
enum class WeightType { as_stored, f32, f16, bf16 };

struct LoadOptions {
  WeightType weights = WeightType::as_stored;  // as_stored uses the mapped file itself, without a copy
  int context = 0;                             // tokens of KV cache; 0: what the checkpoint was trained for
  bool only_known = false;                     // refuse a shape outside the registry instead of running it as Dynamic
  std::function<void(double)> progress = {};   // called with 0..1 while loading
};

namespace detail {

/// What a model owns. Not a template of the shape: building it compiles once per format and backend.
template <WeightFormat Format, Backend B>
struct ModelState {
  using Activation = typename B::Activation;
  using Buffer = typename B::template Buffer<Activation>;

  ModelState(std::shared_ptr<const Checkpoint> checkpoint, B backend, const LoadOptions& options)
      : device(std::move(backend)),
        kv(checkpoint->config(), context_of(*checkpoint, options), device),
        weights(std::move(checkpoint), device, options.progress) {
    const Checkpoint& source = *weights.checkpoint;
    const ModelConfig& shape = source.config();
    norm_epsilon = source.settings().norm_epsilon;
    info = {.name = source.folder().filename().string(),
            .vocab = shape.vocab,
            .context = kv.context(),
            .end_tokens = source.settings().end_tokens,
            .pieces = [folder = source.folder()] { return read_pieces(folder); },
            .step_bytes = weights.step_bytes};
    const std::int64_t q_width = std::int64_t{shape.heads} * shape.head_dim;
    activations = {.x = rows(x, shape.hidden),
                   .q = rows(q, q_width),
                   .mixed = rows(mixed, q_width),
                   .gated = rows(gated, shape.ffn)};
  }

  Norm norm(const typename B::template Buffer<float>& weight) const {
    return {.weight = weight.data(), .epsilon = norm_epsilon};
  }
  Rope rope() const { return {.inverse_frequency = weights.inverse_frequency.data()}; }

  /// Room for the logits of `count` rows, [count, vocab].
  View<float, 2> logit_rows(int count) {
    const auto size = static_cast<std::size_t>(count) * static_cast<std::size_t>(info.vocab);
    if (logits.size() < size) logits.resize(size);
    return {logits.data(), count, info.vocab};
  }

  void check_truncate(int to) const {
    if (to < 0 || to > length) {
      throw Error("model.truncate", text("cannot truncate ", length, " tokens to ", to),
                  text("Give a length of 0..", length));
    }
  }

  void check_extend(std::span<const Token> tokens, int wanted) const {
    if (tokens.size() > static_cast<std::size_t>(info.context - length)) {
      throw Error("model.context-full",
                  text("'", info.name, "' holds ", length, " tokens and cannot take ", tokens.size(),
                       " more: its context is ", info.context),
                  "Shorten the prompt or load the model with a larger LoadOptions::context");
    }
    if (wanted < 0 || static_cast<std::size_t>(wanted) > tokens.size()) {
      throw Error("model.logit-rows", text("asked for the logits of ", wanted, " of ", tokens.size(), " tokens"),
                  "Ask for at most one row per token");
    }
    for (const Token token : tokens) {
      if (token < 0 || token >= info.vocab) {
        throw Error("model.token-out-of-range",
                    text("token id ", token, " is outside the vocabulary 0..", info.vocab - 1, " of '", info.name, "'"),
                    "Encode the text with this model's own tokenizer");
      }
    }
  }

  B device;
  KvCache<B> kv;
  ModelWeights<Format, B> weights;
  float norm_epsilon = 0;
  ModelInfo info;
  int length = 0;             // tokens in the KV cache
  Buffer x, q, mixed, gated;  // what `activations` views
  Activations<B> activations;
  std::vector<float> logits;  // [rows, vocab]

 private:
  View<Activation, 2> rows(Buffer& buffer, std::int64_t width) {
    buffer = device.template allocate<Activation>(static_cast<std::size_t>(B::max_rows * width));
    return {buffer.data(), B::max_rows, width};
  }

  static int context_of(const Checkpoint& checkpoint, const LoadOptions& options) {
    const int trained = checkpoint.settings().context;
    if (options.context < 0 || options.context > trained) {
      throw Error("model.context",
                  text("'", checkpoint.folder().string(), "' was asked for a context of ", options.context,
                       " tokens, its config.json allows ", trained),
                  text("Give LoadOptions::context as 1..", trained, ", or 0 for all of it"));
    }
    return options.context == 0 ? trained : options.context;
  }
};

}  // namespace detail

/// A LanguageModel. Shape is a config of the registry, your own, or Dynamic; the text is the same.
template <Config Shape, WeightFormat Format, Backend B>
class Model {
 public:
  /// Vocabulary size when it is known at compile time, else 0.
  static constexpr int static_vocab = [] {
    if constexpr (StaticConfig<Shape>) {
      return Shape::value.vocab;
    } else {
      return 0;
    }
  }();

  /// Loads a Hugging Face folder whose shape must be this config's.
  static Model load(const std::filesystem::path& folder, B device = {},
                    const LoadOptions& options = {}) requires StaticConfig<Shape> {
    auto checkpoint = std::make_shared<const Checkpoint>(folder);
    if (checkpoint->config() != Shape::value)
      throw not_registered(Registry<Shape>{}, checkpoint->config(), folder.string());
    return Model(Shape{}, std::move(checkpoint), std::move(device), options);
  }

  /// The checkpoint's shape must be `shape`.
  Model(Shape shape, std::shared_ptr<const Checkpoint> checkpoint, B device, const LoadOptions& options = {})
      : shape_(shape), state_(std::move(checkpoint), std::move(device), options) {}

  const ModelInfo& info() const { return state_.info; }
  int length() const { return state_.length; }

  /// Forgets every token from `length` on. The cache rows stay behind, unread, until they are overwritten.
  void truncate(int length) {
    state_.check_truncate(length);
    state_.length = length;
  }

  /// See LanguageModel. Long prompts run in pieces of B::max_rows.
  View<const float, 2> extend(std::span<const Token> tokens, int logit_rows) {
    state_.check_extend(tokens, logit_rows);
    const int count = static_cast<int>(tokens.size());
    const int unwanted = count - logit_rows;  // leading tokens whose logits nobody asked for
    const View<float, 2> logits = state_.logit_rows(logit_rows);
    for (int first = 0; first < count; first += B::max_rows) {
      const int rows = std::min(count - first, B::max_rows);
      const Activations<B> step = state_.activations.slice(0, rows);
      run_layers(tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), state_.length + first,
                 step);
      const int from = std::max(first, unwanted);
      if (const int wanted = first + rows - from; wanted > 0) {
        state_.device.logits(step.x.slice(from - first, wanted), state_.norm(state_.weights.final_norm),
                             state_.weights.head(), logits.slice(from - unwanted, wanted));
      }
    }
    state_.length += count;
    return logits;
  }

 private:
  void run_layers(std::span<const Token> tokens, int position, const Activations<B>& rows) {
    state_.device.embed(state_.weights.embedding, tokens, rows.x);
    for (int l = 0; l < shape_.value.layers; ++l) {
      run_block(state_.device, shape_, state_.weights.layers[static_cast<std::size_t>(l)], state_.norm_epsilon,
                state_.rope(), position, state_.kv.layer(l), rows);
    }
  }

  [[no_unique_address]] Shape shape_;
  detail::ModelState<Format, B> state_;
};

}  // namespace slm
