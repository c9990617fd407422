// LatentWeights: the weights of a layer's latent attention, in the backend's layout, and their reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 {

template <WeightFormat Format, Backend B>
struct LatentWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Vector = typename B::template Buffer<float>;

  Matrix query_low;   // [query_rank, hidden], or empty
  Vector query_norm;  // [query_rank], or empty
  Matrix query;       // [heads * (rotary + unrotated), query_rank or hidden]
  Matrix latent;      // [rotary + rank, hidden]
  Vector norm;        // [rank]
  Matrix keys;        // [heads * rank, unrotated]
  Matrix values;      // [heads * value, rank]
};

namespace detail {

/// The matrices [outputs, inputs] of all heads, one below the other, from a tensor [heads, outputs, inputs].
inline Tensor stacked_heads(const Checkpoint& checkpoint, const TensorName& name) {
  Tensor tensor = checkpoint.tensor(name.name, name.shape);
  tensor.shape = {name.shape[0] * name.shape[1], name.shape[2]};
  return tensor;
}

/// The rows of the heads' values in a matrix with unrotated keys and values.
inline std::vector<std::int64_t> rows_of_latent_values(const ModelConfig& shape) {
  std::vector<std::int64_t> rows;
  const std::int64_t keys = shape.latent.unrotated, value = shape.latent.value;
  for (std::int64_t row = 0; row < shape.heads * value; ++row)
    rows.push_back(row / value * (keys + value) + keys + row % value);
  return rows;
}

/// The type of the keys that transposed_keys() makes.
inline DType type_of_keys(const LinearSource& heads) {
  const auto* const tensor = std::get_if<Tensor>(&heads);
  return tensor != nullptr && is_floating_point(tensor->dtype) ? tensor->dtype : DType::f32;
}

/// The unrotated keys in a matrix with those and values, each head's transposed   [heads * rank, unrotated]
inline Tensor transposed_keys(const LinearSource& heads, const ModelConfig& shape) {
  const std::int64_t rank = shape.latent.rank, keys = shape.latent.unrotated, of_head = keys + shape.latent.value;
  const DType type = type_of_keys(heads);
  const auto element = bytes_of(type);
  std::vector<float> numbers;  // of a matrix of codes
  const std::byte* stored = nullptr;
  if (const auto* const int4 = std::get_if<Int4Tensor>(&heads)) {
    numbers.resize(static_cast<std::size_t>(int4->out * int4->in));
    dequantize(*int4, numbers.data());
  } else if (const Tensor& tensor = std::get<Tensor>(heads); tensor.dtype != type) {
    numbers.resize(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), numbers.data());
  } else {
    stored = tensor.bytes;
  }
  if (stored == nullptr) stored = reinterpret_cast<const std::byte*>(numbers.data());
  Tensor turned{.name = "latent keys", .dtype = type, .shape = {shape.heads * rank, keys}};
  turned.size_bytes = static_cast<std::size_t>(turned.elements()) * element;
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(turned.size_bytes);
  std::byte* to = bytes.get();
  for (std::int64_t row = 0; row < shape.heads * rank; ++row) {
    for (std::int64_t key = 0; key < keys; ++key, to += element) {
      const std::int64_t from = (row / rank * of_head + key) * rank + row % rank;
      std::memcpy(to, stored + static_cast<std::size_t>(from) * element, element);
    }
  }
  turned.bytes = bytes.get();
  turned.owner = std::move(bytes);
  return turned;
}

/// Reader: a WeightReader.
template <WeightFormat Format, Backend B, class Reader>
LatentWeights<Format, B> read_latent(Reader& reader, int layer) {
  const TensorNames& names = reader.names;
  const ModelConfig& shape = reader.checkpoint.config();
  LatentWeights<Format, B> weights;
  if (shape.latent.query_rank != 0) weights.query_low = reader.pack_step(Role::latent_query_low, layer);
  weights.query_norm = reader.vector(names.weights(Role::latent_query_norm, layer));
  weights.query = reader.pack_step(Role::latent_query, layer);
  weights.latent = reader.pack_step(Role::latent, layer);
  weights.norm = reader.vector(names.weights(Role::latent_norm, layer));
  const std::vector<TensorName> heads = names.weights(Role::latent_heads, layer);
  if (heads.size() == 1) {
    weights.keys = reader.pack_step(reader.as_source(transposed_keys(reader.stored(heads[0]), shape)), layer);
    weights.values = reader.pack_step(reader.source(heads[0], rows_of_latent_values(shape)), layer);
  } else {
    weights.keys = reader.pack_step(reader.as_source(stacked_heads(reader.checkpoint, heads[0])), layer);
    weights.values = reader.pack_step(reader.as_source(stacked_heads(reader.checkpoint, heads[1])), layer);
  }
  return weights;
}

}  // namespace detail

}}
