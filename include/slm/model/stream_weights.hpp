// StreamWeights: the weights of a layer's residual streams, in the backend's layout, and their reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/formats/format.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 {

template <WeightFormat Format, Backend B>
struct StreamWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Floats = typename B::template Matrix<Fp32>;
  using Vector = typename B::template Buffer<float>;

  Vector router_norm;    // [hidden], divided by hidden
  Floats router;         // [count, hidden]
  Floats prediction;     // [count * count, count]
  Floats correction;     // [count, count]
  Vector scale;          // [hidden], or empty
  Matrix low_rank_in;    // [low_rank, hidden]
  Matrix low_rank_out;   // [hidden, low_rank]
  Vector low_rank_norm;  // [hidden]
};

namespace detail {

/// The matrices of residual streams outside the layers. Reader: a WeightReader.
template <class Matrix, class Reader>
std::vector<Matrix> read_stream_matrices(Reader& reader, Role role) {
  std::vector<Matrix> matrices;
  const std::vector<TensorName> names = reader.names.weights(role);
  for (std::size_t i = 0; i < names.size(); ++i) {
    matrices.push_back(reader.pack(std::span(names).subspan(i, 1), role, 0));
    reader.step_bytes += matrices.back().bytes();
  }
  return matrices;
}

/// Reader: a WeightReader.
template <WeightFormat Format, Backend B, class Reader>
StreamWeights<Format, B> read_streams(Reader& reader, int layer) {
  const TensorNames& names = reader.names;
  StreamWeights<Format, B> weights;
  const auto floats = [&](Role role) {
    auto matrix = reader.in_floats(role, layer);
    reader.step_bytes += matrix.bytes();
    return matrix;
  };
  const auto hidden = static_cast<float>(reader.checkpoint.config().hidden);
  weights.router_norm = reader.vector(names.weights(Role::stream_router_norm, layer), 1 / hidden);
  weights.router = floats(Role::stream_router);
  weights.prediction = floats(Role::stream_prediction);
  weights.correction = floats(Role::stream_correction);
  weights.scale = reader.vector(names.weights(Role::stream_scale, layer));
  weights.low_rank_in = reader.pack_step(Role::low_rank_in, layer);
  weights.low_rank_out = reader.pack_step(Role::low_rank_out, layer);
  weights.low_rank_norm = reader.vector(names.weights(Role::low_rank_norm, layer));
  return weights;
}

}  // namespace detail

}}
