// Writes the 4-bit copy of a floating-point checkpoint, rounded to nearest, in any of the published layouts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "slm/awq/int4_pack.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/json.hpp"
#include "slm/io/safetensors_writer.hpp"

namespace slm::testing {

struct QuantizedForm {
  Int4Layout layout = Int4Layout::awq_gemm;
  int group = 16;  // -1: whole rows
  bool symmetric = false;
  bool twos_complement = false;
  DType scale_dtype = DType::f16;
};

/// The quantization_config of the layout's own tool.
inline Json quantization_config(const QuantizedForm& form) {
  switch (form.layout) {
    case Int4Layout::awq_gemm:
    case Int4Layout::awq_gemv:
    case Int4Layout::awq_gemv_fast: {
      const char* version = form.layout == Int4Layout::awq_gemm   ? "GEMM"  // old repositories use capitals
                            : form.layout == Int4Layout::awq_gemv ? "gemv"
                                                                  : "gemv_fast";
      return {{"quant_method", "awq"},         {"bits", 4},          {"group_size", form.group},
              {"zero_point", !form.symmetric}, {"version", version}, {"modules_to_not_convert", nullptr}};
    }
    case Int4Layout::packed_rows: {
      Json weights = {{"num_bits", 4}, {"type", "int"}, {"symmetric", form.symmetric}};
      if (form.group == -1) {
        weights["strategy"] = "channel";
        weights["group_size"] = nullptr;
      } else {
        weights["strategy"] = "group";
        weights["group_size"] = form.group;
      }
      const Json group = {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}};
      return {{"quant_method", "compressed-tensors"},
              {"format", "pack-quantized"},
              {"quantization_status", "compressed"},
              {"config_groups", {{"group_0", group}}},
              {"ignore", {"lm_head", "re:.*embed.*"}}};
    }
    case Int4Layout::gptq:
      return {{"quant_method", "gptq"},   {"bits", 4},
              {"group_size", form.group}, {"desc_act", false},
              {"sym", form.symmetric},    {"checkpoint_format", "gptq_v2"}};
    default:
      return {{"quant_method", "quark"},
              {"export", {{"pack_method", form.layout == Int4Layout::quark_order ? "order" : "reorder"}}},
              {"global_quant_config",
               {{"weight",
                 {{"dtype", form.twos_complement ? "int4" : "uint4"},
                  {"group_size", form.group == -1 ? Json(nullptr) : Json(form.group)},
                  {"symmetric", form.symmetric},
                  {"qscheme", "per_group"}}}}},
              {"layer_quant_config", Json::object()},
              {"exclude", {"lm_head"}}};
  }
}

inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::f16) return to_float(from_float<half_t>(value));
  if (dtype == DType::bf16) return to_float(from_float<bfloat16_t>(value));
  return value;
}

/// Nearest codes of a weight [out, in]. The range of a group always contains zero, and the scale is rounded before
/// codes are chosen.
inline Int4Rows round_to_nearest(const Tensor& weight, const QuantizedForm& form) {
  Int4Rows rows{.rows = weight.shape[0], .in = weight.shape[1], .group = 0, .codes = {}, .zeros = {}, .scales = {}};
  rows.group = form.group == -1 ? rows.in : form.group;
  std::vector<float> w(static_cast<std::size_t>(rows.group));
  for (std::int64_t first = 0; first < rows.rows * rows.in; first += rows.group) {
    convert(weight, first, rows.group, w.data());
    const float least = std::min(0.0f, *std::min_element(w.begin(), w.end()));
    const float most = std::max(0.0f, *std::max_element(w.begin(), w.end()));
    const float range = form.symmetric ? 2 * std::max(-least, most) : most - least;
    float scale = rounded_to(form.scale_dtype, range / 15);
    if (scale == 0) scale = 0x1p-24f;
    const float zero = form.symmetric ? 8.0f : std::clamp(std::nearbyint(-least / scale), 0.0f, 15.0f);
    for (const float value : w) {
      rows.codes.push_back(static_cast<std::uint8_t>(std::clamp(std::nearbyint(value / scale) + zero, 0.0f, 15.0f)));
    }
    rows.zeros.push_back(static_cast<std::uint8_t>(zero));
    rows.scales.push_back(scale);
  }
  return rows;
}

/// A checkpoint in memory that a test can damage before it writes it.
struct EditableCheckpoint {
  Json config;
  std::map<std::string, OwnedTensor> tensors;

  void add(OwnedTensor tensor) { tensors.insert_or_assign(tensor.name, std::move(tensor)); }

  OwnedTensor& at(const std::string& name) { return tensors.at(name); }

  /// Replaces config.json and model.safetensors of a folder.
  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    std::vector<Tensor> list;
    for (const auto& [name, tensor] : tensors) {
      list.push_back(tensor);
      list.back().name = name;
    }
    write_safetensors(folder / "model.safetensors", list);
    std::ofstream(folder / "config.json") << config.dump(1);
  }
};

/// Whether a tensor is the weight of a linear layer inside a block of a Llama checkpoint, or a fused qkv whose rows are
/// stored in groups.
inline bool is_linear_weight(const std::string& name) {
  return (name.starts_with("model.layers.") && name.ends_with("_proj.weight")) ||
         name.ends_with(".query_key_value.weight") || name.ends_with(".wqkv.weight");
}

/// A copy of a floating-point checkpoint with its blocks' linear layers in 4 bits.
inline EditableCheckpoint quantized(const Checkpoint& source, const QuantizedForm& form) {
  EditableCheckpoint copy;
  copy.config = read_json_object(source.folder() / "config.json");
  copy.config["quantization_config"] = quantization_config(form);
  for (const auto& [name, tensor] : source.tensors()) {
    if (is_linear_weight(name)) {
      const std::string module = name.substr(0, name.size() - std::string(".weight").size());
      const Int4Packing packing{form.layout, form.scale_dtype, form.symmetric, form.twos_complement};
      for (OwnedTensor& part : pack_int4(round_to_nearest(*tensor, form), module, packing)) copy.add(std::move(part));
    } else {
      OwnedTensor same(name, tensor->dtype, tensor->shape);
      std::copy_n(tensor->bytes, tensor->size_bytes, same.storage.get());
      copy.add(std::move(same));
    }
  }
  return copy;
}

/// The same weights dequantized: F32 tensors under their own names.
inline EditableCheckpoint dequantized(const Checkpoint& source, const QuantizedForm& form) {
  EditableCheckpoint copy = quantized(source, form);
  copy.config.erase("quantization_config");
  for (const auto& [name, tensor] : source.tensors()) {
    if (!is_linear_weight(name)) continue;
    const std::string module = name.substr(0, name.size() - std::string(".weight").size());
    for (auto part = copy.tensors.lower_bound(module + "."); part != copy.tensors.end();) {
      if (!part->first.starts_with(module + ".")) break;
      part = part->first == module + ".bias" ? std::next(part) : copy.tensors.erase(part);
    }
    const Int4Rows rows = round_to_nearest(*tensor, form);
    OwnedTensor plain(name, DType::f32, tensor->shape);
    for (std::int64_t i = 0; i < plain.elements(); ++i) {
      const auto group = static_cast<std::size_t>(i / rows.group);
      const int code = rows.codes[static_cast<std::size_t>(i)];
      plain.set_float(i, static_cast<float>(code - rows.zeros[group]) * rows.scales[group]);
    }
    copy.add(std::move(plain));
  }
  return copy;
}

inline void write_quantized_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                       const QuantizedForm& form) {
  quantized(Checkpoint(from), form).write(to);
}

}  // namespace slm::testing
