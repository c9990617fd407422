// A minimal Backend: vectors as memory, a log instead of kernels, and simple arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"

namespace slm::testing {

/// One log of calls for all copies: "qkv rows=2 at=5". embed fills row r with its token, attend copies its queries,
/// project adds 1, gated_mlp adds 2, mlp 3, normalize does nothing, logits select the token after the one in x[r][0].
using FakeLog = std::shared_ptr<std::vector<std::string>>;

class FakeStep {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  FakeStep(FakeLog log, const StepPlan& plan) : log_(std::move(log)), plan_(plan) {}

  int rows() const { return static_cast<int>(plan_.rows.size()); }
  Rows scratch(int index, std::int64_t width) { return scratch_of(index, rows(), width); }
  Rows scratch_of_outputs(int index, std::int64_t width) {
    return scratch_of(index, static_cast<std::int64_t>(plan_.outputs.size()), width);
  }
  template <class Body>
  void record(NothingRecorded&, Body&& body) {
    body();
  }

  template <class Matrix>
  void embed(const Matrix&, Rows x, ConstRows = {}, int = 0) {
    log("embed", x);
    for (int r = 0; r < rows(); ++r) fill(x, r, static_cast<float>(plan_.rows[static_cast<std::size_t>(r)].token));
  }
  template <class Matrix>
  void embed_positions(const Matrix&, int, Rows x) {
    log("embed_positions", x);
  }
  void adapt_embedding(Rows) {}
  template <class Matrix>
  void qkv(ConstRows x, Norm, const Linear<Matrix>&, Rope, Heads, KvLayer, Rows q, QkvShaping = {}) {
    log("qkv", x, true);
    for (std::int64_t r = 0; r < x.extent(0); ++r) fill(q, r, x(r, 0));
  }
  void attend(ConstRows q, Heads, KvLayer, Rows out, Attention = {}) {
    log("attend", q, true);
    for (std::int64_t r = 0; r < q.extent(0); ++r) fill(out, r, q(r, 0));
  }
  template <class Matrix>
  void project(ConstRows input, const Linear<Matrix>&, Rows x, float = 1) {
    log("project", input);
    for (std::int64_t r = 0; r < x.extent(0); ++r) fill(x, r, x(r, 0) + 1);
  }
  template <class Matrix>
  void gated_mlp(ConstRows x, Norm, const Linear<Matrix>&, Rows out, Activation = ActivationKind::silu) {
    log("gated_mlp", x);
    for (std::int64_t r = 0; r < out.extent(0); ++r) fill(out, r, 2);
  }
  template <class Matrix>
  void mlp(ConstRows x, Norm, const Linear<Matrix>&, Activation, const float*, Rows out) {
    log("mlp", x);
    for (std::int64_t r = 0; r < out.extent(0); ++r) fill(out, r, 3);
  }
  void scale(Rows x, float) { log("scale", x); }
  void add(Rows branch, Norm, Rows) { log("add", branch); }
  void normalize(Rows x, Norm) { log("normalize", x); }
  void select(ConstRows x, Rows out) {
    log("select", out);
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i)
      fill(out, static_cast<std::int64_t>(i), x(plan_.outputs[i], 0));
  }
  template <class Matrix>
  void logits(ConstRows x, Norm, const Linear<Matrix>&, Rows out, Activation = {}) {
    log("logits", x);
    for (std::int64_t r = 0; r < out.extent(0); ++r) {
      fill(out, r, 0);
      out(r, (static_cast<std::int64_t>(x(r, 0)) + 1) % out.extent(1)) = 1;
    }
  }
  void read(ConstRows x, Rows) { log("read", x); }

 private:
  static void fill(Rows rows, std::int64_t row, float value) {
    for (std::int64_t i = 0; i < rows.extent(1); ++i) rows(row, i) = value;
  }
  Rows scratch_of(int index, std::int64_t count, std::int64_t width) {
    scratch_[index].resize(static_cast<std::size_t>(count * width));
    return {scratch_[index].data(), count, width};
  }
  void log(const char* what, ConstRows rows, bool with_position = false) {
    log_->push_back(text(what, " rows=", rows.extent(0)) +
                    (with_position ? text(" at=", plan_.rows.front().position) : std::string{}));
  }

  FakeLog log_;
  StepPlan plan_;
  std::vector<float> scratch_[scratch_buffers];
};

class FakeBackend {
 public:
  static constexpr const char* name = "fake";
  static constexpr int max_rows = 4;
  static constexpr bool own_memory = false;
  static constexpr bool chooses = false;
  using Activation = float;
  static constexpr std::array kv_formats = {KvFormat::f32};
  using Recorded = NothingRecorded;
  template <class T>
  using Buffer = std::vector<T>;
  template <class Format>
  struct Matrix {
    std::int64_t out = 0;
    std::int64_t in = 0;
    std::int64_t bytes() const { return out * in; }
  };

  FakeLog calls = std::make_shared<std::vector<std::string>>();

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(count);
  }
  Buffer<float> upload(const float* host, std::size_t count) { return {host, host + count}; }

  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> tensors) {
    Matrix<Format> matrix{0, tensors.front().shape.at(1)};
    for (const Tensor& tensor : tensors) matrix.out += tensor.shape.at(0);
    return matrix;
  }

  Adapter place(const Adapter& adapter) { return adapter; }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(std::byte* host, const std::byte* from, std::size_t bytes) { std::memcpy(host, from, bytes); }
  void write(std::byte* to, const std::byte* host, std::size_t bytes) { std::memcpy(to, host, bytes); }

  FakeStep begin(const StepPlan& plan) { return {calls, plan}; }
};

}  // namespace slm::testing
