// Model: a transformer with a config, a weight format and a backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "slm/backend/default_device.hpp"
#include "slm/config/registry.hpp"
#include "slm/core/error.hpp"
#include "slm/core/float_environment.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/model/block.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/model_state.hpp"
#include "slm/model/paged_sequence.hpp"
#include "slm/model/planner.hpp"

namespace slm { inline namespace v0_1 {

/// A LanguageModel. A handle: copies share the weights. Thread-safe; steps on one device are serialized. `run_blocks`
/// is compiled per config, all other code once for all configs.
template <WeightFormat Format, Backend B>
class LoadedModel {
 public:
  /// state: may be shared by several handles. run_blocks: compiled for the config of the model.
  LoadedModel(std::shared_ptr<const detail::ModelState<Format, B>> state, detail::RunBlocks<Format, B> run_blocks)
      : state_(std::move(state)), run_blocks_(run_blocks) {
    if constexpr (FollowsSteps<B>) {
      // Copies of the device may outlive the state, and the state's own copy must not keep it alive.
      LoadedModel model = *this;
      model.state_ = nullptr;
      state_->device.on_step([model, state = std::weak_ptr(state_)](const StepPlan& plan) {
        LoadedModel living = model;
        living.state_ = state.lock();
        if (living.state_ == nullptr) {
          throw Error("ranks.out-of-step", "expected the model of rank 0's step on this rank, but it was destroyed",
                      "Keep the model alive as long as rank 0 uses it");
        }
        living.follow(plan);
      });
    }
  }

  const ModelInfo& info() const { return state_->info; }

  Sequence sequence() const { return Sequence(state_->own_pool()); }
  KvPool pool(KvPoolOptions options = {}) const { return state_->make_pool(options); }

  /// See LanguageModel. Batches of more than B::max_rows rows, and long prompts, run in several steps.
  void forward(Batch& batch) const {
    const detail::FloatEnvironment environment;
    const detail::BusErrorsTaken taken;
    for (const Batch::Item& item : batch.items()) check_sequence(*item.sequence);
    detail::check_batch(batch, info());  // before the results are allocated
    batch.reserve(info().vocab, shape().hidden);
    if (!batch.items().empty() && batch.items().front().spec.chain > 1 &&
        !detail::Planner::can_chain(batch, state_->limits)) {
      return detail::forward_one_by_one(*this, batch);
    }
    detail::Planner planner(batch, state_->limits);
    while (const StepPlan* plan = planner.next()) {
      run(*plan, planner, batch);
      state_->check_unchanged();
      planner.taken();
    }
    planner.commit();
  }

 private:
  using State = detail::ModelState<Format, B>;
  using Step = decltype(std::declval<B&>().begin(std::declval<const StepPlan&>()));
  using Rows = View<typename B::Activation, 2>;
  enum Scratch {
    residual,
    queries,
    mixed,
    gated,
    branch,
    narrow,
    streams,
    chosen
  };  // activation buffers; the last ones are for output rows
  static_assert(chosen < scratch_buffers);

  const ModelConfig& shape() const { return state_->weights.checkpoint->config(); }
  const ModelSettings& settings() const { return state_->weights.checkpoint->settings(); }

  void check_sequence(Sequence& sequence) const {
    check_adapter(sequence.adapter(), info());
    const auto* const state = dynamic_cast<detail::PagedSequence*>(&detail::SequenceAccess::state(sequence));
    if (state != nullptr && state->pool.layout().is(state_->layout)) return;
    throw Error("batch.foreign-sequence", text("expected sequences of '", info().name, "'"),
                "Create sequences with sequence() of this model, or in one of its pools");
  }

  void run(const StepPlan& plan, const detail::Planner& planner, Batch& batch) const {
    Step step = state_->device.begin(plan);
    record(step, plan, planner.layout());
    if (plan.outputs.empty()) return;
    if constexpr (B::chooses) {
      if (plan.result == RowResult::choice) {
        if (!plan.masks.empty()) choose(step, step.scratch(residual, shape().hidden), plan.outputs_are_rows());
        return read_choices(step, plan, planner, batch);
      }
    }
    const auto count = static_cast<std::int64_t>(plan.outputs.size()), width = answer_width(plan);
    const bool logits = plan.result == RowResult::logits;
    const auto place = [&](std::size_t answer) { return logits ? batch.logits_at(answer) : batch.hidden_at(answer); };
    std::vector<float> aside(planner.answers_in_order() ? 0 : static_cast<std::size_t>(count * width));
    const View<float, 2> out{aside.empty() ? place(planner.answers().front()) : aside.data(), count, width};
    answer(step, plan, out);
    if constexpr (!B::chooses && !PacksByPlace<B, Format>) {
      if (logits && state_->weights.head_rows) add_head_rows(step, plan, planner, batch, out);
    }
    for (std::size_t i = 0; i < aside.size() / static_cast<std::size_t>(width); ++i)
      std::copy_n(out.row(static_cast<std::int64_t>(i)), width, place(planner.answers()[i]));
  }

  /// Adds the logits of tokens of the text beyond head_tokens.
  void add_head_rows(Step& step, const StepPlan& plan, const detail::Planner& planner, const Batch& batch,
                     View<float, 2> out) const {
    const auto width = static_cast<std::size_t>(shape().hidden);
    std::vector<float> hidden(plan.outputs.size() * width);
    const Rows x = selected(step, step.scratch(residual, shape().hidden), plan.outputs_are_rows());
    step.normalize(x, last_norm());
    step.read(x, View<float, 2>{hidden.data(), out.extent(0), shape().hidden});
    for (const Batch::Item& item : batch.items()) {
      if (item.spec.result != RowResult::logits) continue;
      const std::span<const Token> before = item.sequence->tokens(), added = batch.tokens(item);
      const auto rows = static_cast<std::size_t>(item.spec.rows);
      for (std::size_t i = 0; i < planner.answers().size(); ++i) {
        const std::size_t row = planner.answers()[i] - item.answer;
        if (planner.answers()[i] < item.answer || row >= rows) continue;
        float* const logits = out.row(static_cast<std::int64_t>(i));
        const auto state = std::span<const float>(hidden).subspan(i * width, width);
        state_->weights.head_rows->add(before, state, logits);
        state_->weights.head_rows->add(added.first(added.size() - rows + row + 1), state, logits);
      }
    }
  }

  /// Executes this rank's part of a step. Rank 0 receives the results.
  void follow(const StepPlan& plan) const {
    const detail::FloatEnvironment environment;
    const detail::BusErrorsTaken taken;
    Step step = state_->device.begin(plan);
    record(step, plan, state_->layout.in(plan.format));
    if (plan.outputs.empty()) return;
    const auto count = static_cast<std::int64_t>(plan.outputs.size()), width = answer_width(plan);
    std::vector<float> unread(static_cast<std::size_t>(count * width));
    answer(step, plan, {unread.data(), count, width});
  }

  std::int64_t answer_width(const StepPlan& plan) const {
    return plan.result == RowResult::logits ? info().vocab : shape().hidden;
  }

  /// The recordable part of a step: everything except results that the host reads, and choices by masks, which the host
  /// computes meanwhile.
  void record(Step& step, const StepPlan& plan, const KvLayout& layout) const {
    step.record(state_->recorded, [&] {
      for (int i = 0; i < plan.steps; ++i) {
        [[maybe_unused]] const Rows x = run_layers(step, layout);
        if constexpr (B::chooses) {
          if (plan.result != RowResult::choice || plan.outputs.empty() || !plan.masks.empty()) continue;
          // After the first step of a chain, the rows are the output rows.
          choose(step, x, i > 0 || plan.outputs_are_rows());
          if (i + 1 < plan.steps) step.advance();
        }
      }
    });
  }

  /// out [outputs, vocab] or [outputs, hidden]
  void answer(Step& step, const StepPlan& plan, View<float, 2> out) const {
    const Rows x = selected(step, step.scratch(residual, shape().hidden), plan.outputs_are_rows());
    if (plan.result == RowResult::logits) {
      View<float, 2> computed = out;
      if (state_->weights.head_tokens != 0) computed.extents[1] = state_->weights.head_tokens;
      head(step, x, [&](const Rows& input, const Norm& norm, const auto& weight) {
        step.logits(input, norm, weight, computed, of_logits());
      });
      for (std::int64_t row = 0; row < out.extent(0); ++row) {
        std::fill(out.row(row) + computed.extent(1), out.row(row) + out.extent(1),
                  -std::numeric_limits<float>::infinity());
      }
    } else {
      step.normalize(x, last_norm());
      step.read(x, out);
    }
  }

  /// Runs the embedding and all blocks; returns the residual stream [rows, hidden].
  Rows run_layers(Step& step, const KvLayout& layout) const {
    const BufferWidths widths = buffer_widths(shape(), settings());
    const Mixer& mixer = shape().mixer;
    const bool recurs = mixer.kind != MixerKind::none;
    const Rows x = step.scratch(residual, shape().hidden);
    embed(step, x);
    if (settings().embedding_scale != 1) step.scale(x, settings().embedding_scale);
    const Rows inputs = layer_inputs(step, x);
    const Rows q = step.scratch(queries, widths.queries), wide = step.scratch(mixed, widths.mixed);
    const Rows inner = step.scratch(gated, widths.gated);
    const auto narrowed = [](const Rows& of, std::int64_t columns) { return Rows{of.data, of.extent(0), columns}; };
    Activations<B> rows{.x = x,
                        .q = recurs ? narrowed(q, shape().most_queries()) : q,
                        .mixed = narrowed(wide, shape().most_queries()),
                        .gated = narrowed(inner, shape().most_ffn()),
                        .branch = norms_outputs(shape().order) ? step.scratch(branch, shape().hidden) : Rows{},
                        .projected = recurs ? narrowed(q, mixer.projected()) : Rows{},
                        .inner = recurs ? step.scratch(branch, mixer.inner()) : Rows{},
                        .inputs = inputs};
    if (settings().drops_gates()) rows.gate_up = narrowed(wide, std::int64_t{2} * shape().most_ffn());
    if constexpr (MixesStreams<B>) {
      if (const std::int64_t count = shape().streams.count; count != 0) {
        rows.streams = step.scratch(streams, count * shape().hidden);
        rows.streams = {rows.streams.data, count * x.extent(0), x.extent(1)};
        rows.normed = narrowed(inner, shape().hidden);
        split_streams<B>(step, state_->weights.streams_in, rows);
        run_blocks_(*state_, step, layout, rows);
        merge_streams<B>(step, state_->weights.streams_out, rows);
        return rows.x;
      }
    }
    run_blocks_(*state_, step, layout, rows);
    return rows.x;
  }

  void embed(Step& step, const Rows& x) const {
    const auto& weights = state_->weights;
    const int offset = settings().position_offset;  // of the learned position table
    if (shape().embedding == 0) {
      const float* table = data_or_null(weights.positions);
      View<const float, 2> positions{};
      if (table != nullptr) {
        positions = {table, static_cast<std::int64_t>(weights.positions.size()) / shape().hidden, shape().hidden};
      }
      return embed_tokens(step, x, positions, offset);
    }
    // x starts as the position embedding; the projected token embedding is added to it.
    const Rows embedded = step.scratch(narrow, shape().embedding);
    embed_tokens(step, embedded);
    step.embed_positions(weights.projection->positions, offset, x);
    step.project(embedded, Linear{weights.projection->in, nullptr, number_of(AdaptedProduct::project_in)}, x);
  }

  /// The layers' own inputs from the embedding x: (norm(matrix . x / sqrt(hidden)) + table[token] * sqrt(width)) /
  /// sqrt(2), where the norm covers the part of one layer, and its weights contain 1 / sqrt(2). Uses the scratch memory
  /// `mixed`.
  Rows layer_inputs([[maybe_unused]] Step& step, [[maybe_unused]] const Rows& x) const {
    if constexpr (ShapesLayers<Step>) {
      if (const std::int64_t width = shape().shapes.inputs; width != 0) {
        const auto& of_model = *state_->weights.inputs;
        const Norm as_it_is{.kind = NormKind::none};
        const Rows all = step.scratch(narrow, width * shape().layers), looked_up = step.scratch(mixed, all.extent(1));
        step.mlp(x, as_it_is, Linear{of_model.from_embedding}, ActivationKind::identity, nullptr, all);
        const float epsilon = settings().norm_epsilon * static_cast<float>(shape().hidden);  // instead of the factor
        step.normalize(Rows{all.data, all.extent(0) * shape().layers, width},
                       Norm{.weight = data_or_null(of_model.norm), .epsilon = epsilon});
        step.embed(of_model.table, looked_up);
        step.scale(looked_up, std::sqrt(static_cast<float>(width) / 2));
        step.add(looked_up, as_it_is, all);
        return all;
      }
    }
    return {};
  }

  template <class Step>
  void embed_tokens(Step& step, const Rows& x, View<const float, 2> positions = {}, int offset = 0) const {
    step.embed(state_->weights.embedding, x, positions, offset);
    step.adapt_embedding(x);
  }

  Rows selected(Step& step, const Rows& x, bool all) const {
    if (all) return x;
    const Rows out = step.scratch_of_outputs(chosen, shape().hidden);
    step.select(x, out);
    return out;
  }

  Norm last_norm() const {
    return shape().final_norm ? norm_of<B>(state_->weights.final_norm, shape().norm, settings().norm_epsilon)
                              : Norm{.kind = NormKind::none};
  }

  /// The soft cap of logits, or none.
  Activation of_logits() const {
    Activation activation;
    if (settings().logit_cap == 0) return activation;
    activation.kind = ActivationKind::soft_cap;
    activation.cap = settings().logit_cap;
    return activation;
  }

  /// Calls use(input, norm, linear) with the operands of the logits product.
  template <class Use>
  void head(Step& step, const Rows& x, Use use) const {
    const auto& weights = state_->weights;
    const auto last = linear(weights.head(), weights.head_bias, number_of(AdaptedProduct::head));
    if (shape().embedding == 0) return use(x, last_norm(), last);
    const Rows narrowed = step.scratch_of_outputs(narrow, shape().embedding);
    const Linear narrow_to{weights.projection->out, nullptr, number_of(AdaptedProduct::project_out)};
    step.mlp(x, last_norm(), narrow_to, ActivationKind::identity, nullptr, narrowed);
    use(narrowed, Norm{.kind = NormKind::none}, last);
  }

  void choose(Step& step, const Rows& x, bool outputs_are_rows) const {
    head(step, selected(step, x, outputs_are_rows), [&](const Rows& input, const Norm& norm, const auto& weight) {
      step.choose(input, norm, weight, of_logits());
    });
  }

  static void read_choices(Step& step, const StepPlan& plan, const detail::Planner& planner, Batch& batch) {
    const std::size_t count = plan.outputs.size();
    std::vector<Token> tokens(count * static_cast<std::size_t>(plan.steps));  // [steps, outputs]
    step.chosen(tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      *batch.choice_at(planner.answers()[i % count] + i / count) = tokens[i];
  }

  std::shared_ptr<const State> state_;
  detail::RunBlocks<Format, B> run_blocks_;
};

/// Shape: a config of the registry, a user-defined config, or Dynamic.
template <Config Shape, WeightFormat Format, Backend B>
class Model : public LoadedModel<Format, B> {
  using Base = LoadedModel<Format, B>;

 public:
  /// Vocabulary size if known at compile time, else 0.
  static constexpr int static_vocab = [] {
    if constexpr (StaticConfig<Shape>) {
      return Shape::value.vocab;
    } else {
      return 0;
    }
  }();

  /// Loads a Hugging Face folder whose shape must equal this config.
  static Model load(const std::filesystem::path& folder, B device = backend::default_device<B>(),
                    const LoadOptions& options = {}) requires StaticConfig<Shape> {
    auto checkpoint = std::make_shared<const Checkpoint>(folder);
    if (checkpoint->config() != Shape::value)
      throw not_registered(Registry<Shape>{}, checkpoint->config(), folder.string());
    return Model(Shape{}, std::move(checkpoint), std::move(device), options);
  }

  /// The checkpoint's shape must equal the config.
  Model(Shape, std::shared_ptr<const Checkpoint> checkpoint, B device, const LoadOptions& options = {})
      : Base(detail::make_state<Format>(std::move(checkpoint), std::move(device), options),
             detail::run_blocks<Shape, Format, B>) {}
};

}}
