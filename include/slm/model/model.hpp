// Model: a transformer of a compile-time config, a weight format and a backend.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "slm/config/registry.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/block.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/model_state.hpp"

namespace slm {

/// A LanguageModel, and a ChoosingModel where the backend can choose. Shape is a config of the registry, your own, or
/// Dynamic; the text is the same.
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
  void truncate(int length) { state_.truncate(length); }

  /// See LanguageModel and ModelState::extend.
  View<const float, 2> extend(std::span<const Token> tokens, int logit_rows) {
    return state_.extend(tokens, logit_rows, {run_blocks, &shape_});
  }

  /// See ChoosingModel.
  bool chooses() const requires RecordsSteps<B> { return state_.recordable(); }
  std::span<const Token> choose(std::span<const Token> tokens, int rows, const Draw& draw) requires RecordsSteps<B> {
    return state_.choose(tokens, rows, draw, {run_blocks, &shape_});
  }
  std::span<const Token> propose(std::span<const Token> tokens, int count, const Draw& draw) requires RecordsSteps<B> {
    return state_.propose(tokens, count, draw, {run_blocks, &shape_});
  }

 private:
  using State = detail::ModelState<Format, B>;

  static void run_blocks(const void* shape, State& state, int position, bool beyond, const Activations<B>& rows) {
    const Shape& config = *static_cast<const Shape*>(shape);
    for (int l = 0; l < config.value.layers; ++l) {
      run_block(state.device, config, state.weights.layers[static_cast<std::size_t>(l)], state.block(l, beyond),
                position, state.kv.layer(l), rows);
    }
  }

  [[no_unique_address]] Shape shape_;
  State state_;
};

}  // namespace slm
