// backend::Gpu: the operations of the concept as launches on a device. Which vendor's it is, or the processor that
// emulates one, is the runtime's business.
//
// A layer is five launches: queries, keys and values; attention; its projection; gated MLP; its projection. Shapes
// whose heads or gates are no whole tiles take two launches for an operation, prompts one more for the statistics of a
// norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/attention.hpp"
#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/device_state.hpp"
#include "slm/backend/gpu/steps/step_graphs.hpp"
#include "slm/backend/gpu/weights/tile_matrix.hpp"

namespace slm::backend {

/// A handle: copies share the device, its stream and scratch memory. Operations of all models on one handle run in
/// order. Keys and values are kept as fp16; activations are fp32 in memory and fp16 or bf16 in the matrix unit.
template <gpu::Runtime R>
class Gpu {
 public:
  static constexpr const char* name = R::name;
  static constexpr bool emulated = requires { R::emulated; };
  static constexpr int max_rows = emulated ? 48 : 512;

 private:
  using State = gpu::DeviceState<R, max_rows>;

 public:
  static constexpr int most_recorded_rows = State::most_recorded_rows;
  static constexpr int most_steps = max_rows;  // of choosing_steps()
  using Runtime = R;
  using Activation = float;
  using KvElement = half_t;
  template <class T>
  using Buffer = gpu::DeviceBuffer<T, R>;
  template <class Format>
  using Matrix = gpu::TileMatrix<Format, R>;
  using Steps = gpu::StepGraphs<R>;

  Gpu(GpuOptions options = {}) : Gpu(R(options.device), options) {}
  explicit Gpu(int device) : Gpu(GpuOptions{.device = device}) {}
  explicit Gpu(R runtime, GpuOptions options = {}) : state_(std::make_shared<State>(std::move(runtime), options)) {}

  R& runtime() const { return state_->runtime; }
  const gpu::DeviceInfo& info() const { return state_->runtime.info(); }

  /// Throws gpu.out-of-memory.
  template <class T>
  Buffer<T> allocate(std::size_t count) {
    const std::lock_guard lock(state_->mutex);
    Buffer<T> buffer(state_->runtime, count);
    if (count > 0) state_->runtime.fill(buffer.data(), 0, count * sizeof(T), state_->stream);
    return buffer;
  }

  Buffer<float> upload(const float* host, std::size_t count) {
    const std::lock_guard lock(state_->mutex);
    Buffer<float> buffer(state_->runtime, count);
    if (count > 0) {
      state_->runtime.copy_in(buffer.data(), host, count * sizeof(float), state_->stream);
      state_->runtime.synchronize(state_->stream);
    }
    return buffer;
  }

  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    const std::lock_guard lock(state_->mutex);
    return Matrix<Format>(state_->runtime, state_->stream, sources);
  }

  /// Memory for recorded steps of a model, so that none of them allocates; `product` is the widest of its products.
  void reserve(Heads heads, std::int64_t product, int vocab, int context) {
    const std::lock_guard lock(state_->mutex);
    state_->reserve(heads, product, vocab, context);
  }
  static std::size_t reserved_bytes(Heads heads, std::int64_t product, int vocab, int context) {
    return State::reserved(heads, product, vocab, context).bytes();
  }

  /// Calls layers(), the operations of one step on `tokens` from `position` on, or replays what they launched when a
  /// step of this shape was recorded. layers() must depend on nothing else that changes, but for `variant`.
  template <class Layers>
  void step(Steps& steps, std::span<const Token> tokens, int position, int variant, Layers layers) {
    const std::lock_guard lock(state_->mutex);
    run_steps(steps, {.variant = variant}, tokens, position, layers);
  }

  /// The same for `count` steps, the first on `tokens` and each other one on the token that the step before it chose.
  /// step(i) are the operations of the i-th and end in choose(). Only what is chosen leaves the device: for some rows
  /// of one step, or one token of each step. More than one step begins with at most most_recorded_rows tokens.
  template <class Step>
  void choosing_steps(Steps& steps, std::span<const Token> tokens, int position, int variant, const Draw& draw,
                      int count, std::span<Token> out, Step step) {
    const std::lock_guard lock(state_->mutex);
    state_->chooser.begin(state_->runtime, state_->stream, draw);
    const gpu::StepShape shape{.steps = count,
                               .chosen = static_cast<int>(out.size()) / count,
                               .choice = gpu::choice_of(draw),
                               .variant = variant};
    run_steps(steps, shape, tokens, position, [&] {
      for (int i = 0; i < count; ++i) {
        if (i > 0) state_->position = position + i;  // the step before has moved it on
        state_->goes_on = i + 1 < count;
        step(i);
      }
    });
    state_->position = position + count - 1;
    state_->chooser.read(state_->landing, state_->stream, out);
  }

  template <class Weight>
  void embed(const Weight& table, std::span<const Token> tokens, View<float, 2> x, View<const float, 2> positions = {},
             int position = 0) {
    const std::lock_guard lock(state_->mutex);
    if (state_->chunks == 0) state_->set_step(tokens, position);
    table.visit([&]<class Format>(Format) {
      launch<gpu::Embed<Format>>({.table = table.tiles(),
                                  .step = state_->step.memory(),
                                  .positions = memory(positions),
                                  .x = memory(x),
                                  .rows = static_cast<int>(tokens.size())});
    });
  }

  template <class Weight>
  void qkv(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, Rope rope, Heads heads,
           int position, View<float, 2> q, KvLayer<half_t> kv, QkvShaping shaping = {}) {
    const std::lock_guard lock(state_->mutex);
    state_->set_position(position);
    const int rotating = rope.rotating(heads.dim);
    gpu::QkvArgs to{.q = memory(q),
                    .keys = memory(kv.keys),
                    .values = memory(kv.values),
                    .step = state_->step.memory(),
                    .inverse_frequency = memory(rope.inverse_frequency, rotating / 2),
                    .bias = memory(bias, weight.out),
                    .query = heads.query,
                    .kv = heads.kv,
                    .dim = heads.dim,
                    .capacity = static_cast<int>(kv.keys.extent(1)),
                    .rotating = rotating,
                    .factor = rope.factor,
                    .clip = shaping.clip};
    const bool whole_tiles = rotating == 0 || (rotating % 32 == 0 && heads.dim % gpu::tile_height == 0);
    if (shaping.norm == QkNorm::none && whole_tiles) {
      gpu::Panels panels{.tiles = weight.tiles().tiles()};
      if (rotating != 0) {
        panels.groups = heads.query + heads.kv;
        panels.group_tiles = heads.dim / gpu::tile_height;
        panels.pairs = rotating / 2 / gpu::tile_height;
        panels.tail = panels.groups * panels.group_tiles;
      }
      return product<gpu::QueriesKeysValues>(weight, x, norm, panels, to);
    }
    const int rows = static_cast<int>(x.extent(0));
    const View<float, 2> projected{state_->grow(state_->scratch, rows * weight.out), rows, weight.out};
    store(x, norm, weight, bias, projected);
    to.bias = {};
    const bool whole = shaping.norm == QkNorm::whole;
    const auto of_heads = [&](const Norm& of, int count) {
      return shaping.norm == QkNorm::none ? gpu::NormArgs{} : norm_args(of, whole ? count * heads.dim : heads.dim);
    };
    launch<gpu::ShapeQkv>({.projected = memory(View<const float, 2>(projected)),
                           .to = to,
                           .query_norm = of_heads(shaping.query, heads.query),
                           .key_norm = of_heads(shaping.key, heads.kv),
                           .whole = whole,
                           .rows = rows});
  }

  void attend(View<const float, 2> q, Heads heads, int position, KvLayer<half_t> kv, View<float, 2> out,
              Attention attention = {}) {
    const std::lock_guard lock(state_->mutex);
    State::check(heads);
    state_->set_position(position);
    const float scale = attention.scale != 0 ? attention.scale : 1.0f / std::sqrt(static_cast<float>(heads.dim));
    gpu::AttentionArgs args{.q = memory(q),
                            .keys = memory(kv.keys),
                            .values = memory(kv.values),
                            .out = memory(out),
                            .step = state_->step.memory(),
                            .slopes = memory(attention.slopes, heads.query),
                            .partial = {},
                            .tickets = {},
                            .rows = static_cast<int>(q.extent(0)),
                            .query = heads.query,
                            .kv = heads.kv,
                            .dim = heads.dim,
                            .capacity = static_cast<int>(kv.keys.extent(1)),
                            .window = attention.window,
                            .scale = scale * 1.44269504088896341f,
                            .chunks = 0};
    if (heads.dim <= 64) {
      attend_with<64>(args, position);
    } else if (heads.dim <= 128) {
      attend_with<128>(args, position);
    } else {
      attend_with<256>(args, position);
    }
  }

  template <class Weight>
  void project(View<const float, 2> input, const Weight& weight, const float* bias, View<float, 2> x) {
    const std::lock_guard lock(state_->mutex);
    product<gpu::AddToRows>(weight, input, Norm{.kind = NormKind::none}, neighbours(weight),
                            {.x = memory(x), .bias = memory(bias, weight.out), .width = static_cast<int>(weight.out)});
  }

  template <class Weight>
  void gated_mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, View<float, 2> out,
                 ActivationKind activation = ActivationKind::silu) {
    const std::lock_guard lock(state_->mutex);
    const int width = static_cast<int>(weight.out / 2), rows = static_cast<int>(x.extent(0));
    if (width % gpu::tile_height == 0) {
      const int pairs = width / gpu::tile_height;
      return product<gpu::Gated>(
          weight, x, norm,
          {.groups = 1, .group_tiles = 2 * pairs, .pairs = pairs, .tail = 2 * pairs, .tiles = 2 * pairs},
          {.out = memory(out), .bias = memory(bias, weight.out), .width = width, .activation = activation});
    }
    const View<float, 2> projected{state_->grow(state_->scratch, rows * weight.out), rows, weight.out};
    store(x, norm, weight, bias, projected);
    launch<gpu::GateRows>({.gate_up = memory(View<const float, 2>(projected)),
                           .out = memory(out),
                           .width = width,
                           .rows = rows,
                           .activation = activation});
  }

  template <class Weight>
  void mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, ActivationKind activation,
           const float* divisor, View<float, 2> out) {
    const std::lock_guard lock(state_->mutex);
    store(x, norm, weight, bias, out, activation, divisor);
  }

  void normalize(View<float, 2> x, Norm norm) {
    const std::lock_guard lock(state_->mutex);
    launch<gpu::NormalizeRows>({.x = memory(x),
                                .width = static_cast<int>(x.extent(1)),
                                .rows = static_cast<int>(x.extent(0)),
                                .norm = norm_args(norm, x.extent(1))});
  }

  /// out is host memory; waits for the device.
  template <class Weight>
  void logits(View<const float, 2> x, Norm norm, const Weight& weight, View<float, 2> out,
              const float* bias = nullptr) {
    const std::lock_guard lock(state_->mutex);
    const View<float, 2> on_device = device_logits(x, norm, weight, bias);
    state_->landing.read(state_->stream, out.data, on_device.data,
                         static_cast<std::size_t>(out.size()) * sizeof(float));
  }

  /// Chooses a token for each row by those logits, in a step of choosing_steps(); x begins with its row `first`.
  template <class Weight>
  void choose(View<const float, 2> x, Norm norm, const Weight& weight, int first, const float* bias = nullptr) {
    const std::lock_guard lock(state_->mutex);
    const View<const float, 2> on_device = device_logits(x, norm, weight, bias);
    state_->chooser.choose(state_->runtime, state_->stream, memory(on_device), static_cast<int>(x.extent(0)), first,
                           state_->step.memory(), state_->tickets.memory(), state_->goes_on);
  }

  /// Waits for everything that was asked for.
  void synchronize() { state_->runtime.synchronize(state_->stream); }

 private:
  template <class T>
  static gpu::Memory<T> memory(T* data, std::int64_t size) {
    return {data, data == nullptr ? 0 : size};
  }
  template <class T, int Rank>
  static gpu::Memory<T> memory(View<T, Rank> view) {
    return {view.data, view.size()};
  }

  template <class K>
  void launch(const typename K::Args& args) {
    state_->runtime.template launch<K>(args, state_->stream);
  }

  template <class Body>
  void run_steps(Steps& steps, gpu::StepShape shape, std::span<const Token> tokens, int position, Body body) {
    shape.rows = static_cast<int>(tokens.size());
    if (shape.rows == 0 || shape.rows > most_recorded_rows) return body();
    shape.generation = state_->generation;
    shape.chunks = gpu::StepShape::chunks_of(position + shape.rows + shape.steps - 1);
    state_->set_step(tokens, position);
    state_->chunks = shape.chunks;  // from here on operations find tokens and position in place
    const auto leave = [](State* state) { state->chunks = 0; };
    const std::unique_ptr<State, decltype(leave)> at_end(state_.get(), leave);
    steps.run(shape, state_->runtime, state_->stream, body);
  }

  static gpu::NormArgs norm_args(const Norm& norm, std::int64_t width) {
    return {.weight = memory(norm.weight, width),
            .bias = memory(norm.bias, width),
            .epsilon = norm.epsilon,
            .kind = norm.kind};
  }

  template <class Weight>
  static gpu::Panels neighbours(const Weight& weight) {
    return {.tiles = weight.tiles().tiles()};
  }

  template <class Epilogue, class Weight>
  void product(const Weight& weight, View<const float, 2> x, const Norm& norm, const gpu::Panels& panels,
               const typename Epilogue::Args& epilogue) {
    const int rows = static_cast<int>(x.extent(0));
    if (rows == 0) return;
    weight.visit([&]<class Format>(Format) {
      gpu::ProductArgs<Format, Epilogue> args{.weight = weight.tiles(),
                                              .panels = panels,
                                              .x = {memory(x), static_cast<int>(x.extent(1)), rows},
                                              .norm = norm_args(norm, x.extent(1)),
                                              .statistics = {},
                                              .epilogue = epilogue};
      // A norm that is only a weight and a bias needs no statistics, but it needs to be applied.
      if (rows <= state_->options.most_vector_rows) return launch<gpu::ProductVectors<Format, Epilogue>>(args);
      if (norm.kind != NormKind::none) {
        launch<gpu::MeasureRows>({args.x, args.norm, state_->statistics.memory()});
        args.statistics = state_->statistics.memory();
      }
      launch<gpu::ProductTiles<Format, Epilogue>>(args);
    });
  }

  /// out = activation(norm(x) . weight^T + bias) / divisor
  template <class Weight>
  void store(View<const float, 2> x, const Norm& norm, const Weight& weight, const float* bias, View<float, 2> out,
             ActivationKind activation = ActivationKind::identity, const float* divisor = nullptr) {
    product<gpu::Activated>(weight, x, norm, neighbours(weight),
                            {.out = memory(out),
                             .bias = memory(bias, weight.out),
                             .divisor = memory(divisor, weight.out),
                             .width = static_cast<int>(weight.out),
                             .activation = activation});
  }

  template <class Weight>
  View<float, 2> device_logits(View<const float, 2> x, const Norm& norm, const Weight& weight, const float* bias) {
    const int rows = static_cast<int>(x.extent(0));
    const View<float, 2> on_device{state_->grow(state_->logits, rows * weight.out), rows, weight.out};
    store(x, norm, weight, bias, on_device);
    return on_device;
  }

  template <int Dim>
  void attend_with(gpu::AttentionArgs& args, int position) {
    constexpr int many = Dim <= 128 ? 32 : 16;
    const int oldest = args.window == 0 ? 0 : std::max(0, position + 1 - args.window);
    int chunks = (position + args.rows - 1) / gpu::chunk - oldest / gpu::chunk + 1;
    if (state_->chunks != 0) {  // as many as any position of this shape may need
      const int of_window = (args.window + args.rows - 2) / gpu::chunk + 2;
      chunks = args.window == 0 ? state_->chunks : std::min(state_->chunks, of_window);
    }
    const std::int64_t partial = State::partial_size(args.rows, {args.query, args.kv, args.dim}, chunks);
    const int blocks = gpu::Attend<Dim, 16>::tiles(args) * args.kv;
    const int wanted = state_->options.split_blocks != 0 ? state_->options.split_blocks : 4 * info().multiprocessors;
    if (chunks > 1 && blocks < wanted && blocks <= State::most_tickets && partial <= State::most_partial) {
      args.chunks = chunks;
      args.partial = {state_->grow(state_->partial, partial), partial};
      args.tickets = state_->tickets.memory();
      return launch<gpu::Attend<Dim, 16>>(args);
    }
    if (args.rows * (args.query / args.kv) <= 16) return launch<gpu::Attend<Dim, 16>>(args);
    launch<gpu::Attend<Dim, many>>(args);
  }

  std::shared_ptr<State> state_;
};

}  // namespace slm::backend
