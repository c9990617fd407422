// The operations of a layer one by one, as a model calls them, and its head. The weights cycle through more copies than
// the caches hold. A GPU launches them in sequence without a graph: the time of a short operation is the launch time.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/device/harness.hpp"
#include "bench/device/random_weights.hpp"
#include "slm/backend/concept.hpp"

namespace slm::bench {

/// The operations of one subject with their data.
template <class Target, class Format>
class Kernels {
 public:
  using Backend = typename Target::Backend;
  using Matrix = typename Backend::template Matrix<Format>;

  /// positions: cached positions before the rows of attention.
  Kernels(Target& target, const Subject& subject, int positions, KvFormat cache_format)
      : target_(target),
        subject_(subject),
        position_(positions),
        cache_format_(cache_format),
        device_(target.open(subject.format)),
        heads_{subject.shape.heads, subject.shape.kv_heads, subject.shape.head_dim} {
    const ModelConfig& shape = subject.shape;
    q_width_ = shape.heads * shape.head_dim;
    const auto widest = static_cast<std::size_t>(std::max({q_width_, shape.hidden, shape.ffn}));
    const std::vector<float> numbers(static_cast<std::size_t>(Backend::max_rows) * widest, 0.5f);
    in_ = device_.upload(numbers.data(), numbers.size());
    out_ = device_.upload(numbers.data(), numbers.size());
    ones_ = device_.upload(std::vector<float>(widest, 1.0f).data(), widest);
    const auto half = static_cast<std::size_t>(shape.kv_heads * kv_head_bytes(cache_format_, shape.head_dim));
    const int pages = (position_ + Backend::max_rows - 1) / page_positions + 1;
    const std::size_t layer = 2 * half * static_cast<std::size_t>(pages);
    layers_ = static_cast<int>(std::clamp(std::ceil(cold_bytes / static_cast<double>(layer)), 1.0, 512.0));
    // Small numbers in every format: all bytes are alike. They are written, since unwritten memory is one page of
    // zeros.
    const std::vector<float> cached(layer * static_cast<std::size_t>(layers_) / sizeof(float),
                                    std::bit_cast<float>(0x3c3c3c3cu));
    cache_ = device_.template allocate<float>(cached.size());
    std::byte* const first = reinterpret_cast<std::byte*>(cache_.data());
    device_.write(first, reinterpret_cast<const std::byte*>(cached.data()), cached.size() * sizeof(float));
    const std::size_t page_bytes = 2 * half * static_cast<std::size_t>(layers_);
    for (int page = 0; page < pages; ++page) table_.push_back(first + static_cast<std::size_t>(page) * page_bytes);
    half_ = static_cast<std::int64_t>(half);
  }

  void run(benchmark::State& state, Result& result) {
    const ModelConfig& shape = subject_.shape;
    const int kv_width = shape.kv_heads * shape.head_dim;
    const std::string operation = result.benchmark.substr(std::string("kernel-").size());
    if (operation == "qkv") {
      product(state, result, q_width_ + 2 * kv_width, shape.hidden, [&](const Matrix& weight, int rows) {
        begin(rows).qkv(input(rows, shape.hidden), norm(), Linear{weight}, Rope{.inverse_frequency = {ones_.data()}},
                        heads_, layer(0), output(rows, q_width_));
      });
    } else if (operation == "project") {
      product(state, result, shape.hidden, q_width_, [&](const Matrix& weight, int rows) {
        begin(rows).project(input(rows, q_width_), Linear{weight}, output(rows, shape.hidden));
      });
    } else if (operation == "gated_mlp") {
      product(state, result, 2 * shape.ffn, shape.hidden, [&](const Matrix& weight, int rows) {
        begin(rows).gated_mlp(input(rows, shape.hidden), norm(), Linear{weight}, output(rows, shape.ffn));
      });
    } else if (operation == "down") {
      product(state, result, shape.hidden, shape.ffn, [&](const Matrix& weight, int rows) {
        begin(rows).project(input(rows, shape.ffn), Linear{weight}, output(rows, shape.hidden));
      });
    } else if (operation == "head") {
      std::vector<float> logits(static_cast<std::size_t>(result.rows) * static_cast<std::size_t>(shape.vocab));
      product(state, result, shape.vocab, shape.hidden, [&](const Matrix& weight, int rows) {
        begin(rows).logits(input(rows, shape.hidden), norm(), Linear{weight},
                           View<float, 2>{logits.data(), rows, shape.vocab});
      });
    } else if (operation == "attend") {
      const double bytes = 2.0 * shape.kv_heads * static_cast<double>(kv_row_bytes(cache_format_, shape.head_dim)) *
                           (position_ + result.rows);
      time(state, result, bytes, [&](int turn, int rows) {
        begin(rows).attend(input(rows, q_width_), heads_, layer(turn), output(rows, q_width_));
      });
    } else {
      const double bytes = 2.0 * sizeof(float) * shape.hidden * result.rows;
      time(state, result, bytes, [&](int, int rows) { begin(rows).normalize(output(rows, shape.hidden), norm()); });
    }
  }

 private:
  static constexpr double cold_bytes = Target::emulated ? 0 : 256e6;

  View<const float, 2> input(int rows, int width) { return View<float, 2>{in_.data(), rows, width}; }
  View<float, 2> output(int rows, int width) { return {out_.data(), rows, width}; }
  KvLayer layer(int turn) const {
    const std::int64_t keys = turn % layers_ * 2 * half_;
    return {.keys = keys, .values = keys + half_};
  }
  Norm norm() const { return {.weight = ones_.data(), .epsilon = 1e-5f, .bias = nullptr, .kind = NormKind::rms}; }

  /// Prepares a step of `rows` tokens of one sequence, from `position_` on.
  auto begin(int rows) {
    sequence_ = {.rows = rows, .pages = static_cast<int>(table_.size())};
    rows_.clear();
    for (int r = 0; r < rows; ++r) rows_.push_back({.position = position_ + r, .parent = r - 1});
    outputs_.resize(static_cast<std::size_t>(rows));
    std::iota(outputs_.begin(), outputs_.end(), 0);
    return device_.begin({.rows = rows_,
                          .sequences = {&sequence_, 1},
                          .pages = table_,
                          .outputs = outputs_,
                          .draws = {},
                          .format = cache_format_});
  }

  /// A product with weights [out, in], cycling through the copies.
  template <class Action>
  void product(benchmark::State& state, Result& result, int out, int in, Action&& action) {
    if (out != out_of_weights_ || in != in_of_weights_) make_weights(out, in);
    time(state, result, static_cast<double>(weights_.front().bytes()),
         [&](int turn, int rows) { action(weights_[static_cast<std::size_t>(turn) % weights_.size()], rows); });
    result.numbers["flop_per_second"] = 2.0 * out * in * result.rows / result.seconds;
  }

  void make_weights(int out, int in) {
    weights_.clear();
    bytes_.reset();
    const std::size_t elements = static_cast<std::size_t>(out) * static_cast<std::size_t>(in);
    const double bytes = static_cast<double>(elements) * (subject_.int4() ? 0.53 : 2.0);
    const auto copies = static_cast<std::size_t>(std::clamp(std::ceil(cold_bytes / bytes), 1.0, 512.0));
    const bool apart = !target_.copies_weights(subject_);
    bytes_ = std::make_unique<RandomWeights>(DType::bf16, apart, subject_.int4() ? 1 : elements * (apart ? copies : 1),
                                             subject_.int4() ? elements : RandomWeights::group * std::size_t{8},
                                             std::sqrt(12.0f / static_cast<float>(in)));
    for (std::size_t i = 0; i < copies; ++i) weights_.push_back(pack(Format{}, out, in));
    out_of_weights_ = out;
    in_of_weights_ = in;
  }

  Matrix pack(Bf16, std::int64_t out, std::int64_t in) {
    const Tensor weight = bytes_->dense("weight", {out, in});
    return device_.template pack<Bf16>(std::span<const Tensor>(&weight, 1));
  }
  Matrix pack(AwqInt4<>, std::int64_t out, std::int64_t in) {
    const Tensor codes = bytes_->codes("codes", out, in), zeros = bytes_->zeros("zeros", out, in),
                 scales = bytes_->scales("scales", out, in);
    const LinearSource source = Int4Tensor{.name = "weight",
                                           .layout = Int4Layout::awq_gemm,
                                           .out = out,
                                           .in = in,
                                           .group = RandomWeights::group,
                                           .codes = &codes,
                                           .scales = &scales,
                                           .zeros = &zeros};
    return device_.template pack<AwqInt4<>>(std::span<const LinearSource>(&source, 1));
  }

  /// Seconds per call, over enough calls for a few milliseconds, and the same for one row.
  template <class Action>
  void time(benchmark::State& state, Result& result, double bytes, Action&& action) {
    int turn = 0;
    const auto calls_of = [&](int count, int rows) {
      for (int i = 0; i < count; ++i) action(turn++, rows);
      Target::finish(device_);
    };
    calls_of(1, result.rows);
    const double start = seconds();
    calls_of(1, result.rows);
    const int calls = Target::emulated ? 1 : static_cast<int>(std::clamp(0.01 / (seconds() - start), 1.0, 256.0));
    ProbedSamples samples;
    std::vector<double> ratios;
    for (auto _ : state) {
      const double took = samples.measure(target_.probe(), [&] { calls_of(calls, result.rows); });
      state.SetIterationTime(took / calls);
      if (result.rows == 1) continue;
      const double before = seconds();
      calls_of(calls, 1);
      ratios.push_back(took / (seconds() - before));
    }
    conclude(result, samples, bytes * calls);
    result.seconds /= calls;
    result.bytes = bytes;
    result.numbers["times_one_row"] = result.rows == 1 ? 1 : median(ratios);
  }

  Target& target_;
  Subject subject_;
  int position_;
  KvFormat cache_format_;
  Backend device_;
  Heads heads_;
  int q_width_ = 0, out_of_weights_ = 0, in_of_weights_ = 0;
  typename Backend::template Buffer<float> in_, out_, ones_;
  typename Backend::template Buffer<float> cache_;  // pages
  std::int64_t half_ = 0;                           // bytes of the keys of a layer in a page
  int layers_ = 1;                                  // more layers than the caches hold
  std::vector<std::byte*> table_;
  PlanSequence sequence_;
  std::vector<PlanRow> rows_;
  std::vector<int> outputs_;
  std::unique_ptr<RandomWeights> bytes_;
  std::vector<Matrix> weights_;
};

template <class Target>
class KernelTable {
 public:
  KernelTable(Target& target, Harness& harness, const MeasureOptions& options)
      : target_(target),
        harness_(harness),
        quick_(options.quick),
        positions_(options.positions != 0 ? options.positions
                   : Target::emulated     ? 70
                                          : 1024),
        cache_format_(options.cache_format.value_or(Target::Backend::kv_formats[0])) {}

  void add(const Subject& subject) {
    const std::vector<int> row_counts = Target::emulated ? std::vector<int>{1}
                                        : quick_         ? std::vector<int>{1, 5, 64}
                                                         : std::vector<int>{1, 2, 4, 5, 8, 16, 64, 512};
    std::vector<const char*> operations = {"qkv", "project", "gated_mlp", "down"};
    if (!subject.int4())
      operations.insert(operations.end(), {"head", "attend", "norm"});  // the same for all weight formats
    const int samples = Target::emulated ? 1 : quick_ ? 3 : 11;
    for (const char* operation : operations) {
      for (const int rows : row_counts) {
        harness_.add(text("kernel-", operation), subject, rows, samples, samples,
                     [this, subject](benchmark::State& state, Result& result) {
                       if (subject.int4()) {
                         of<AwqInt4<>>(int4_, subject).run(state, result);
                       } else {
                         of<Bf16>(bf16_, subject).run(state, result);
                       }
                     });
      }
    }
  }

 private:
  template <class Format>
  using Kept = std::optional<Kernels<Target, Format>>;

  /// Only one subject is in memory.
  template <class Format>
  Kernels<Target, Format>& of(Kept<Format>& kept, const Subject& subject) {
    const std::string wanted = subject.model + " " + subject.format;
    if (name_ != wanted) {
      bf16_.reset();
      int4_.reset();
      kept.emplace(target_, subject, positions_, cache_format_);
      name_ = wanted;
    }
    return *kept;
  }

  Target& target_;
  Harness& harness_;
  bool quick_;
  int positions_;  // cached positions before the rows of attention
  KvFormat cache_format_;
  Kept<Bf16> bf16_;
  Kept<AwqInt4<>> int4_;
  std::string name_;
};

}  // namespace slm::bench
