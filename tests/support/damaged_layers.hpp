// A quantized checkpoint of one block that a test damages, and the error of loading it.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "slm/io/linear_source.hpp"
#include "support/int4_layers.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

namespace slm::testing::damage {

inline constexpr ModelConfig shape{
    .layers = 1, .hidden = 64, .ffn = 128, .heads = 2, .kv_heads = 1, .head_dim = 64, .vocab = 16};
inline const std::string down = "model.layers.0.mlp.down_proj";  // [64, 128]
inline constexpr std::int64_t down_out = 64, down_in = 128;

/// A floating-point model in a folder, for the duration of the tests.
inline const Checkpoint& original() {
  static const TemporaryFolder folder;
  static const Checkpoint checkpoint = [] {
    write_random_checkpoint<half_t>(folder.path(), shape, 21);
    return Checkpoint(folder.path());
  }();
  return checkpoint;
}

inline EditableCheckpoint quantized_with(Int4Layout layout, int group = 32, bool symmetric = false) {
  return quantized(original(), {.layout = layout, .group = group, .symmetric = symmetric});
}

inline std::vector<TensorName> matrices() {
  const TensorNames names(shape);
  std::vector<TensorName> all;
  for (const Role role : {Role::qkv, Role::attention_out, Role::gate_up, Role::down}) {
    const auto part = names.weights(role);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

inline std::string module_of(const TensorName& weight) { return weight.name.substr(0, weight.name.rfind('.')); }

/// Opens a checkpoint and finds all its layers, as the loader does.
inline void look_up(const EditableCheckpoint& checkpoint) {
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  const Checkpoint opened(folder.path());
  for (const TensorName& weight : matrices()) {
    const StoredLinear source = linear_source(opened, module_of(weight), weight.shape[0], weight.shape[1]);
    if (const auto* int4 = std::get_if<Int4Tensor>(&source)) {
      unpack(*int4, 0, int4->out);
    } else if (const auto* scaled = std::get_if<ScaledTensor>(&source)) {
      dequantized(*scaled);
    } else {
      REQUIRE(std::get<Tensor>(source).shape == weight.shape);
    }
  }
}

/// The error's text, "" for none.
inline std::string fault(const EditableCheckpoint& checkpoint) {
  try {
    look_up(checkpoint);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// Damages a checkpoint of this layout; its error must have the id and all the words.
inline void check_refused(Int4Layout layout, const std::function<void(EditableCheckpoint&)>& damage,
                          const std::string& id, std::initializer_list<std::string> words) {
  EditableCheckpoint checkpoint = quantized_with(layout);
  REQUIRE(fault(checkpoint).empty());
  damage(checkpoint);
  const std::string message = fault(checkpoint);
  CHECK_THAT(message, Catch::Contains("[" + id + "]"));
  CHECK_THAT(message, Catch::Contains(std::filesystem::temp_directory_path().string()));  // the folder or file
  for (const std::string& word : words) CHECK_THAT(message, Catch::Contains(word));
}

inline OwnedTensor reshaped(const OwnedTensor& tensor, std::vector<std::int64_t> extents, DType dtype) {
  OwnedTensor other(tensor.name, dtype, std::move(extents));
  std::copy_n(tensor.bytes, std::min(tensor.size_bytes, other.size_bytes), other.storage.get());
  return other;
}

inline constexpr auto gemm = Int4Layout::awq_gemm;
inline constexpr auto gemv = Int4Layout::awq_gemv;
inline constexpr auto gemv_fast = Int4Layout::awq_gemv_fast;
inline constexpr auto packed_rows = Int4Layout::packed_rows;
inline constexpr auto quark = Int4Layout::quark_reorder;
inline constexpr auto gptq = Int4Layout::gptq;

}  // namespace slm::testing::damage
