// Tensors of a GGUF model as slm::Tensor, referring to the mapped file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/gguf_model.hpp"

namespace slm { inline namespace v0_1 {

/// Tensors of a model. Queries and keys of some architectures have a row order other than slm's; those are copied.
struct GgufTensors {
  std::vector<Tensor> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;

  GgufTensors(const GgufFile& file, const ModelConfig& config) {
    const GgufArchitecture& architecture = architecture_of(file);
    const bool pairs = architecture.pairs;
    for (const GgufTensor* stored : file.tensors()) {
      if (!stored->type->dtype) {
        throw Error("gguf.unsupported-type",
                    text("'", file.path().string(), "': tensor ", quote(stored->name), " is of the type ",
                         stored->type->name, ", which slm does not support"),
                    "Use a file of a common type, such as Q4_K_M, Q4_0 or Q8_0");
      }
      Tensor tensor{.name = std::string{stored->name},
                    .dtype = *stored->type->dtype,
                    .shape = stored->shape,
                    .bytes = stored->bytes,
                    .size_bytes = stored->size_bytes};
      if (architecture.name == "falcon-h1" && tensor.name.ends_with(".ffn_norm")) tensor.name += ".weight";
      if (pairs) bring_halves_together(tensor, config);
      tensors.push_back(std::move(tensor));
    }
  }

 private:
  /// Row 2j + s of a head in the file is row s * D / 2 + j in slm's rotation order: (i, i + D / 2) instead of (2i, 2i +
  /// 1). Rows are whole blocks, so values do not change.
  void bring_halves_together(Tensor& tensor, const ModelConfig& config) {
    const std::string_view name = tensor.name;
    const auto is = [name](std::string_view module) {
      return name.ends_with(text(module, ".weight")) || name.ends_with(text(module, ".bias"));
    };
    const std::int64_t q = config.heads, k = config.kv_heads, head = config.head_dim;
    const bool fused = is(".attn_qkv");
    const std::int64_t turned = fused ? q + k : is(".attn_q") ? q : is(".attn_k") ? k : 0;  // number of heads
    const std::int64_t rows = (fused ? turned + k : turned) * head;
    if (turned == 0 || head % 2 != 0 || tensor.shape.empty() || tensor.shape[0] != rows) return;
    const auto row_bytes = tensor.size_bytes / static_cast<std::size_t>(rows);
    auto copy = std::make_unique_for_overwrite<std::byte[]>(tensor.size_bytes);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t i = row % head;
      const std::int64_t from = row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
      std::memcpy(copy.get() + static_cast<std::size_t>(row) * row_bytes,
                  tensor.bytes + static_cast<std::size_t>(row < turned * head ? from : row) * row_bytes, row_bytes);
    }
    tensor.bytes = copy.get();
    copies.push_back(std::move(copy));
  }
};

}}
