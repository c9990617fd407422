// ModelState: what a model owns, and its steps but for the blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/block.hpp"
#include "slm/model/cache_contents.hpp"
#include "slm/model/device_room.hpp"
#include "slm/model/kv_cache.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/weights.hpp"

namespace slm {

/// How to store the weights in memory.
enum class WeightType { as_stored, f32, f16, bf16 };

struct LoadOptions {
  WeightType weights = WeightType::as_stored;  // as_stored uses the mapped file itself, without a copy
  int context = 0;                             // tokens of KV cache; 0: what the checkpoint was trained for
  bool only_known = false;                     // refuse a shape outside the registry instead of running it as Dynamic
  std::function<void(double)> progress = {};   // called with 0..1 while loading
};

/// A backend that records its steps and can choose tokens in them.
template <class B>
concept RecordsSteps = requires {
  typename B::Steps;
};

namespace detail {

/// The steps that a model's backend has recorded.
template <class B>
struct StepsOf {
  struct type {};
};
template <RecordsSteps B>
struct StepsOf<B> {
  using type = typename B::Steps;
};

/// What a model owns. Not a template of the shape: building it compiles once per format and backend.
template <WeightFormat Format, Backend B>
struct ModelState {
  using Activation = typename B::Activation;
  using Buffer = typename B::template Buffer<Activation>;

  ModelState(std::shared_ptr<const Checkpoint> checkpoint, B backend, const LoadOptions& options)
      : device(std::move(backend)),
        kv(checkpoint->config(), checkpoint->settings(), context_of(*checkpoint, options, device), device),
        cache(checkpoint->settings(), kv.context(), kv.ring()),
        weights(std::move(checkpoint), device, options.progress) {
    const Checkpoint& source = *weights.checkpoint;
    const ModelConfig& shape = source.config();
    info = {.name = source.folder().filename().string(),
            .vocab = shape.vocab,
            .context = kv.context(),
            .end_tokens = source.settings().end_tokens,
            .tokens = [folder = source.folder()] { return read_vocabulary(folder); },
            .step_bytes = weights.step_bytes};
    const std::int64_t q_width = std::int64_t{shape.heads} * shape.head_dim;
    activations = {.x = rows(x, shape.hidden),
                   .q = rows(q, q_width),
                   .mixed = rows(mixed, q_width),
                   .gated = rows(gated, shape.ffn),
                   .narrow = shape.embedding != 0 ? rows(narrow, shape.embedding) : View<Activation, 2>{}};
    if constexpr (RecordsSteps<B>) {
      device.reserve({shape.heads, shape.kv_heads, shape.head_dim}, widest_product(shape), shape.vocab, kv.context());
    }
  }

  /// `beyond`: of the text beyond LongRoPE's original context.
  BlockSettings block(int layer, bool beyond) const {
    const ModelSettings& settings = weights.checkpoint->settings();
    return {.norm_epsilon = settings.norm_epsilon,
            .clip_qkv = settings.clip_qkv,
            .rope = {.inverse_frequency = data_or_null(weights.inverse_frequency[beyond]),
                     .width = weights.checkpoint->config().rotary_dim(),
                     .factor = settings.rope_scaling.attention_factor},
            .attention = {.scale = settings.attention_scale,
                          .window = settings.window_of(layer),
                          .slopes = data_or_null(weights.alibi)}};
  }

  /// Room for the logits of `count` rows, [count, vocab].
  View<float, 2> logits_of(int count) {
    const auto size = static_cast<std::size_t>(count) * static_cast<std::size_t>(info.vocab);
    if (logit_buffer.size() < size) logit_buffer.resize(size);
    return {logit_buffer.data(), count, info.vocab};
  }

  /// The blocks of a model of a certain shape: run(shape, state, position, beyond, rows).
  struct Blocks {
    void (*run)(const void* shape, ModelState& state, int position, bool beyond, const Activations<B>& rows);
    const void* shape;
  };

  void truncate(int to) {
    check_truncate(to);
    length = to;
    cache.truncate(to);
  }

  /// See LanguageModel. Long prompts run in pieces of B::max_rows.
  ///
  /// With LongRoPE every row is computed as if its own token were the last: with the first table up to the original
  /// context and with the second beyond it, for the whole text before. A text whose first tokens already reach beyond
  /// is read with the second table from its beginning, as transformers reads a prompt.
  View<const float, 2> extend(std::span<const Token> tokens, int logit_rows, Blocks blocks) {
    check_extend(tokens, logit_rows);
    const View<float, 2> rows = logits_of(logit_rows);
    read(tokens, logit_rows, blocks, [&](std::span<const Token> piece, int position, bool beyond, int wanted, int at) {
      const Activations<B> step = run_layers(piece, position, beyond, blocks);
      if (wanted > 0) logits(step.slice(step.x.extent(0) - wanted, wanted), rows.slice(at, wanted));
    });
    return rows;
  }

  /// Whether steps can be recorded: positions of models that project their embedding are looked up as tokens are.
  bool recordable() const { return shape().embedding == 0 || shape().positions != Positions::learned; }

  /// See ChoosingModel.
  std::span<const Token> choose(std::span<const Token> tokens, int rows, const Draw& draw, Blocks blocks) {
    check_extend(tokens, rows);
    chosen.resize(static_cast<std::size_t>(rows));
    read_choosing(tokens, draw, blocks, chosen);
    return chosen;
  }

  std::span<const Token> propose(std::span<const Token> tokens, int count, const Draw& draw, Blocks blocks) {
    check_extend(tokens, 1, count - 1);
    chosen.assign(static_cast<std::size_t>(count), no_token);
    const std::span<Token> all{chosen};
    if (tokens.size() > std::size_t{B::most_recorded_rows}) {
      extend(tokens.first(tokens.size() - 1), 0, blocks);
      tokens = tokens.last(1);
    }
    for (int done = 0; done < count && (done == 0 || tokens.front() != no_token);) {
      const std::span<Token> next = all.subspan(static_cast<std::size_t>(done));
      if (cache.original_context() != std::numeric_limits<int>::max()) {  // the next token may need another table
        read_choosing(tokens, draw, blocks, next.first(1));
        done += 1;
      } else {
        const int steps = std::min(count - done, B::most_steps);
        done += run_chain(tokens, steps, draw, blocks, next.first(static_cast<std::size_t>(steps)));
      }
      tokens = std::span<const Token>(all).subspan(static_cast<std::size_t>(done - 1), 1);
    }
    return chosen;
  }

  void check_truncate(int to) const {
    if (to < 0 || to > length) {
      throw Error("model.truncate", text("cannot truncate ", length, " tokens to ", to),
                  text("Give a length of 0..", length));
    }
  }

  /// `more` tokens follow these.
  void check_extend(std::span<const Token> tokens, int wanted, int more = 0) const {
    if (tokens.size() + static_cast<std::size_t>(more) > static_cast<std::size_t>(info.context - length)) {
      throw Error("model.context-full",
                  text("'", info.name, "' holds ", length, " tokens and cannot take ",
                       tokens.size() + static_cast<std::size_t>(more), " more: its context is ", info.context),
                  "Shorten the prompt, or load the model with a larger context (LoadOptions::context, --context)");
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
  CacheContents cache;
  ModelWeights<Format, B> weights;
  ModelInfo info;
  int length = 0;                     // tokens of the text so far
  Buffer x, q, mixed, gated, narrow;  // what `activations` views
  Activations<B> activations;
  std::vector<float> logit_buffer;  // [rows, vocab]
  std::vector<Token> chosen;        // by the last choose() or propose()
  [[no_unique_address]] typename StepsOf<B>::type recorded;

 private:
  const ModelConfig& shape() const { return weights.checkpoint->config(); }

  /// Appends tokens. step(piece, position, beyond, wanted, at) runs a piece of them, the last `wanted` rows of which
  /// are the result's from `at` on: of all tokens, the last `rows`.
  template <class Step>
  void read(std::span<const Token> tokens, int rows, Blocks blocks, Step step) {
    const int count = static_cast<int>(tokens.size()), unwanted = count - rows;
    cache.remember(length, tokens);
    const int original = cache.original_context();
    const bool all_beyond = length == 0 && count > original;
    const int within = all_beyond ? 0 : std::clamp(original - length, 0, count);
    const auto run = [&](int first, int last, bool beyond) {
      if (first < last) make_ready(length + first, beyond, blocks);
      for (; first < last; first += B::max_rows) {
        const int size = std::min(last - first, B::max_rows), from = std::max(first, unwanted);
        step(tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size)), length + first, beyond,
             std::max(0, first + size - from), from - unwanted);
      }
    };
    if (within == count || within > unwanted) run(0, within, false);
    if (within < count) run(within, count, true);
    length += count;
  }

  /// The same, with a token chosen after each of the last out.size() tokens.
  void read_choosing(std::span<const Token> tokens, const Draw& draw, Blocks blocks, std::span<Token> out) {
    read(tokens, static_cast<int>(out.size()), blocks,
         [&](std::span<const Token> piece, int position, bool beyond, int wanted, int at) {
           if (wanted == 0) {
             run_layers(piece, position, beyond, blocks);
           } else {
             run_choosing(piece, position, beyond, 1, draw, blocks,
                          out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(wanted)));
           }
         });
  }

  /// Some steps, each on the token that the one before it chose. Returns their number.
  int run_chain(std::span<const Token> tokens, int steps, const Draw& draw, Blocks blocks, std::span<Token> out) {
    cache.remember(length, tokens);
    make_ready(length, false, blocks);
    run_choosing(tokens, length, false, steps, draw, blocks, out);
    length += static_cast<int>(tokens.size());
    for (const Token token : out.first(static_cast<std::size_t>(steps - 1))) {
      const Token read = std::max(token, 0);  // as the device reads no_token
      cache.remember(length++, {&read, 1});
    }
    return steps;
  }

  /// Steps from embedding to the choice of tokens: for the last out.size() rows of one, or for one row of each.
  void run_choosing(std::span<const Token> tokens, int position, bool beyond, int steps, const Draw& draw,
                    Blocks blocks, std::span<Token> out) {
    const int wanted = static_cast<int>(out.size()) / steps;
    const auto step = [&](int i) {
      const int size = i == 0 ? static_cast<int>(tokens.size()) : 1, first = size - wanted;
      const Activations<B> rows = activations.slice(0, size);
      embed(tokens.first(static_cast<std::size_t>(size)), position + i, rows);
      blocks.run(blocks.shape, *this, position + i, beyond, rows);
      head(rows.slice(first, wanted), [&](const auto& input, const Norm& norm, const auto& weight, const float* bias) {
        device.choose(input, norm, weight, first, bias);
      });
    };
    device.choosing_steps(recorded, tokens, position, beyond ? 1 : 0, draw, steps, out, step);
    cache.wrote(position + static_cast<int>(tokens.size()) + steps - 1);
  }

  /// Reads the text before `position` again where the cache no longer serves it.
  void make_ready(int position, bool beyond, Blocks blocks) {
    if (cache.serves(position, beyond)) return;
    cache.reset(beyond);
    const std::span<const Token> text = cache.first(position);
    for (int first = 0; first < position; first += B::max_rows) {
      const int rows = std::min(position - first, B::max_rows);
      run_layers(text.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), first, beyond, blocks);
    }
  }

  /// At most max_rows tokens from embedding to the last block.
  Activations<B> run_layers(std::span<const Token> tokens, int position, bool beyond, Blocks blocks) {
    const Activations<B> rows = activations.slice(0, static_cast<int>(tokens.size()));
    const auto layers = [&] {
      embed(tokens, position, rows);
      blocks.run(blocks.shape, *this, position, beyond, rows);
    };
    if constexpr (RecordsSteps<B>) {
      recordable() ? device.step(recorded, tokens, position, beyond ? 1 : 0, layers) : layers();
    } else {
      layers();
    }
    cache.wrote(position + static_cast<int>(tokens.size()));
    return rows;
  }

  void embed(std::span<const Token> tokens, int position, const Activations<B>& rows) {
    const int offset = weights.checkpoint->settings().position_offset;  // of the table of learned positions
    if (shape().embedding == 0) {
      const float* table = data_or_null(weights.positions);
      View<const float, 2> positions{};
      if (table != nullptr) {
        positions = {table + std::int64_t{offset} * shape().hidden,
                     static_cast<std::int64_t>(weights.positions.size()) / shape().hidden - offset, shape().hidden};
      }
      return device.embed(weights.embedding, tokens, rows.x, positions, position);
    }
    // x starts as the positions, and the projection is added to it.
    std::vector<Token> places(tokens.size());
    std::iota(places.begin(), places.end(), position + offset);
    device.embed(weights.embedding, tokens, rows.narrow);
    device.embed(weights.projection->positions, places, rows.x);
    device.project(rows.narrow, weights.projection->in, nullptr, rows.x);
  }

  void logits(const Activations<B>& rows, View<float, 2> out) {
    head(rows, [&](const auto& input, const Norm& norm, const auto& weight, const float* bias) {
      device.logits(input, norm, weight, out, bias);
    });
  }

  /// Hands on what logits are the product of: use(input, norm, weight, bias).
  template <class Use>
  void head(const Activations<B>& rows, Use use) {
    const ModelConfig& shape = this->shape();
    const float epsilon = weights.checkpoint->settings().norm_epsilon;
    const Norm as_it_is{.kind = NormKind::none};
    const Norm norm = shape.final_norm ? norm_of<B>(weights.final_norm, shape.norm, epsilon) : as_it_is;
    const float* bias = data_or_null(weights.head_bias);
    if (shape.embedding == 0) return use(rows.x, norm, weights.head(), bias);
    device.mlp(rows.x, norm, weights.projection->out, nullptr, ActivationKind::identity, nullptr, rows.narrow);
    use(rows.narrow, as_it_is, weights.head(), bias);
  }

  View<Activation, 2> rows(Buffer& buffer, std::int64_t width) {
    buffer = device.template allocate<Activation>(static_cast<std::size_t>(B::max_rows * width));
    return {buffer.data(), B::max_rows, width};
  }

  static int context_of(const Checkpoint& checkpoint, const LoadOptions& options, [[maybe_unused]] const B& device) {
    const int trained = checkpoint.settings().context;
    if (options.context < 0 || options.context > trained) {
      throw Error("model.context",
                  text("'", checkpoint.folder().string(), "' was asked for a context of ", options.context,
                       " tokens, its config.json allows ", trained),
                  text("Give 1..", trained, " (LoadOptions::context, --context), or 0 for all of it"));
    }
    const int context = options.context == 0 ? trained : options.context;
    if constexpr (HasDeviceMemory<B>) check_device_room<Format>(checkpoint, context, device);
    return context;
  }
};

}  // namespace detail

}  // namespace slm
