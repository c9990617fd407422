// The smallest thing that is a Backend: vectors for memory, a log for kernels, and arithmetic a test can do in its
// head.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slm/backend/concept.hpp"

namespace slm::testing {

/// Copies share one log of calls: "qkv rows=2 at=5". embed fills row r with tokens[r], attend copies its queries,
/// project adds 1, gated_mlp gives 2, mlp 3, normalize does nothing, logits point at the token after the one in
/// x[r][0].
class FakeBackend {
 public:
  static constexpr const char* name = "fake";
  static constexpr int max_rows = 4;
  using Activation = float;
  using KvElement = float;
  template <class T>
  using Buffer = std::vector<T>;
  template <class Format>
  struct Matrix {
    std::int64_t out = 0;
    std::int64_t in = 0;
    std::int64_t bytes() const { return out * in; }
  };

  std::shared_ptr<std::vector<std::string>> calls = std::make_shared<std::vector<std::string>>();

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

  template <class Format>
  void embed(const Matrix<Format>&, std::span<const Token> tokens, View<float, 2> x, View<const float, 2> = {},
             int = 0) {
    log("embed", x.extent(0));
    for (std::int64_t r = 0; r < x.extent(0); ++r) fill(x, r, static_cast<float>(tokens[static_cast<std::size_t>(r)]));
  }

  template <class Format>
  void qkv(View<const float, 2> x, Norm, const Matrix<Format>&, const float*, Rope, Heads heads, int position,
           View<float, 2> q, KvLayer<float> kv, QkvShaping = {}) {
    log("qkv", x.extent(0), position);
    for (std::int64_t r = 0; r < x.extent(0); ++r) {
      fill(q, r, x(r, 0));
      for (int h = 0; h < heads.kv; ++h) kv.keys(h, position + r, 0) = kv.values(h, position + r, 0) = x(r, 0);
    }
  }

  void attend(View<const float, 2> q, Heads, int position, KvLayer<float>, View<float, 2> out, Attention = {}) {
    log("attend", q.extent(0), position);
    for (std::int64_t r = 0; r < q.extent(0); ++r) fill(out, r, q(r, 0));
  }

  template <class Format>
  void project(View<const float, 2> input, const Matrix<Format>&, const float*, View<float, 2> x) {
    log("project", input.extent(0));
    for (std::int64_t r = 0; r < x.extent(0); ++r) fill(x, r, x(r, 0) + 1);
  }

  template <class Format>
  void gated_mlp(View<const float, 2> x, Norm, const Matrix<Format>&, const float*, View<float, 2> out,
                 ActivationKind = ActivationKind::silu) {
    log("gated_mlp", x.extent(0));
    for (std::int64_t r = 0; r < out.extent(0); ++r) fill(out, r, 2);
  }

  template <class Format>
  void mlp(View<const float, 2> x, Norm, const Matrix<Format>&, const float*, ActivationKind, const float*,
           View<float, 2> out) {
    log("mlp", x.extent(0));
    for (std::int64_t r = 0; r < out.extent(0); ++r) fill(out, r, 3);
  }

  void normalize(View<float, 2> x, Norm) { log("normalize", x.extent(0)); }

  template <class Format>
  void logits(View<const float, 2> x, Norm, const Matrix<Format>&, View<float, 2> out, const float* = nullptr) {
    log("logits", x.extent(0));
    for (std::int64_t r = 0; r < out.extent(0); ++r) {
      fill(out, r, 0);
      out(r, (static_cast<std::int64_t>(x(r, 0)) + 1) % out.extent(1)) = 1;
    }
  }

 private:
  static void fill(View<float, 2> rows, std::int64_t row, float value) {
    for (std::int64_t i = 0; i < rows.extent(1); ++i) rows(row, i) = value;
  }
  void log(const char* what, std::int64_t rows, int position = -1) {
    calls->push_back(text(what, " rows=", rows) + (position < 0 ? std::string{} : text(" at=", position)));
  }
};

}  // namespace slm::testing
