// LinearSearch: finds one linear layer in any supported quantization layout; linear_source().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/quantization.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_tensor.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/layer_search.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/io/mxfp4_matrix.hpp"
#include "slm/io/scaled_search.hpp"
#include "slm/io/stored_linear.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Matches a name against a pattern with * (any run) and ? (any character). Linear time, except after the last star.
inline bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// The search for one layer.
class LinearSearch : public LayerSearch {
 public:
  using Version = QuantizationSettings::Version;
  using LayerSearch::LayerSearch;

  StoredLinear run() const {
    refuse_foreign();
    const Tensor* weight = find(".weight");
    const Tensor* qweight = find(".qweight");
    const Tensor* packed = find(".weight_packed");
    const bool weight_is_codes =
        weight && (weight->dtype == DType::i32 || (settings().method == Method::quark &&
                                                   !is_floating_point(weight->dtype) && !is_blocked(weight->dtype)));
    const ScaledSearch scaled(*this);
    if ((weight != nullptr) + (qweight != nullptr) + (packed != nullptr) > 1) {
      throw Error("quant.two-weights",
                  text(where_, " has both '", weight ? weight->name : qweight->name, "' and '",
                       packed ? packed->name : qweight->name, "': expected one of them"),
                  "Export the checkpoint again");
    }
    if (const Tensor* blocks = find(".weight_blocks"); blocks && !weight) {
      return mxfp4_matrix(*blocks, need(*blocks, {".weight_scales"}), out_, in_, where_);
    }
    if (weight && weight->dtype == DType::f8_e4m3) return scaled.float8(*weight);
    if (weight && weight->dtype == DType::i8 && !weight_is_codes) return scaled.int8(*weight);
    if (weight && !weight_is_codes) return checkpoint_.tensor(weight->name, {out_, in_});
    if (qweight) return settings().form == StatedQuantization::Form::gptq ? scaled.gptq(*qweight) : awq(*qweight);
    if (packed) return scaled.has_eight_bits(*packed) ? scaled.packed(*packed) : compressed(*packed);
    if (weight) return quark(*weight);
    throw missing();
  }

 private:
  static constexpr const char* gptq_without_settings =
      "a GPTQ checkpoint, but no config.json or quantize_config.json states that and its version";

  Error foreign(const Tensor& sign, const char* what) const {
    return Error("quant.unsupported-method", text(where_, " has '", sign.name, "': ", what),
                 "Use an AWQ checkpoint of the model, or quantize the floating-point one with slm quantize");
  }

  void refuse_foreign() const {
    const bool gptq = settings().form == StatedQuantization::Form::gptq;
    if (const Tensor* sign = find(".g_idx"); sign && !gptq) throw foreign(*sign, gptq_without_settings);
    if (const Tensor* sign = find(".weight_g_idx")) throw foreign(*sign, "activation order, which AWQ does not have");
    if (const Tensor* sign = find_any({".pre_quant_scale", ".weights_scaling_factor", ".weight_scale_2"})) {
      throw foreign(*sign, "ModelOpt (NVIDIA) weights, which are not those of AutoAWQ");
    }
    if (const Tensor* sign = find_any({".weight.absmax", ".weight.quant_state.bitsandbytes__nf4", ".SCB"})) {
      throw foreign(*sign, "weights quantized by bitsandbytes");
    }
  }

  /// The error for a layer without weights. Fused experts get a separate error because their names resemble a layer's.
  Error missing() const {
    for (const char* suffix : {"", "_packed", ".qweight", ".weight_packed"}) {
      const Tensor* tensor = checkpoint_.find(module_ + suffix);
      if (tensor && tensor->shape.size() == 3) return fused_experts(*tensor);
    }
    for (const char* part : {".scales", ".qzeros", ".weight_scale", ".weight_zero_point", ".qscales"}) {
      if (const Tensor* rest = find(part)) {
        return Error("quant.incomplete-layer", text(where_, " has '", rest->name, "' but no codes"),
                     "Check that all shards are present, or download the checkpoint again");
      }
    }
    if (!has_int4_layers(checkpoint_)) return checkpoint_.missing(module_ + ".weight", {out_, in_});
    return Error("checkpoint.missing-tensor",
                 text("'", checkpoint_.folder().string(), "': expected a tensor '", module_, ".weight' [", out_, ", ",
                      in_, "] or 4-bit codes ('", module_, ".qweight' or '", module_, ".weight_packed')"),
                 "Check that all shards are present and that config.json belongs to these weights");
  }

  // AWQ exports of AutoAWQ, llm-awq, AutoRound and GPTQModel.

  StoredLinear awq(const Tensor& codes) const {
    check_method(Method::awq, codes, "AutoAWQ");
    const Int4Rule* rule = settings().rules.empty() ? nullptr : &settings().rules.front();
    Int4Tensor layer = layer_of(codes);
    layer.scales = &need(codes, {".scales"});
    layer.zeros = find_any({".qzeros", ".scaled_zeros"});
    const bool symmetric = rule && rule->symmetric.value_or(false);
    if (!layer.zeros && !symmetric) need(codes, {".qzeros"});
    layer.layout = awq_layout(codes, *layer.scales, rule);
    if (layer.layout == Int4Layout::awq_gemm) {
      layer.group = group_size(rule, *layer.scales, 0);
    } else {
      layer.group = padded_group_size(layer.layout, *layer.scales, rule);
    }
    return checked(layer);
  }

  Int4Layout awq_layout(const Tensor& codes, const Tensor& scales, const Int4Rule* rule) const {
    const std::vector<std::int64_t>& shape = codes.shape;
    const auto stated = [&](Version version, const char* name, Int4Layout layout) {
      if (settings().version == Version::unstated || settings().version == version) return layout;
      throw Error("quant.config-mismatch",
                  text(where_, ": '", codes.name, "' ", shape_text(shape), " is of the AWQ version ", name, ", but '",
                       settings().file, "' states another version"),
                  "Check that config.json belongs to these weights");
    };
    if (codes.dtype == DType::i16) return stated(Version::gemv_fast, "gemv_fast", Int4Layout::awq_gemv_fast);
    const bool gemm = out_ % 8 == 0 && shape == std::vector{in_, out_ / 8};
    const bool gemv = in_ % 8 == 0 && shape == std::vector{out_, in_ / 8};
    if (gemm && gemv) {  // a square layer: the scales decide
      if (scales_fit_gemm(scales, rule)) return stated(Version::gemm, "gemm", Int4Layout::awq_gemm);
      if (!padded_group_sizes(Int4Layout::awq_gemv, scales, rule).empty()) {
        return stated(Version::gemv, "gemv", Int4Layout::awq_gemv);
      }
      return settings().version == Version::gemv ? Int4Layout::awq_gemv : Int4Layout::awq_gemm;
    }
    if (gemm) return stated(Version::gemm, "gemm", Int4Layout::awq_gemm);
    if (gemv) return stated(Version::gemv, "gemv", Int4Layout::awq_gemv);
    if (codes.dtype == DType::i32 && in_ % 8 == 0 && shape == std::vector{in_ / 8, out_}) {
      throw foreign(codes, gptq_without_settings);
    }
    if (codes.dtype == DType::i32 && in_ % 16 == 0 && shape == std::vector{in_ / 16, 2 * out_}) {
      throw foreign(codes, "packed for the Marlin kernel");
    }
    switch (settings().version) {  // check_int4 reports the expected shape
      case Version::gemv: return Int4Layout::awq_gemv;
      case Version::gemv_fast: return Int4Layout::awq_gemv_fast;
      default: return Int4Layout::awq_gemm;
    }
  }

  bool scales_fit_gemm(const Tensor& scales, const Int4Rule* rule) const {
    if (scales.shape.size() != 2 || scales.shape[0] < 1 || scales.shape[1] != out_) return false;
    if (in_ % scales.shape[0] != 0) return false;
    const std::int64_t group = in_ / scales.shape[0];
    return rule && rule->group != 0 ? group == (rule->group == -1 ? in_ : rule->group) : group >= 8;
  }

  /// Group sizes whose padded scales have this shape, among the stated size or the usual sizes.
  std::vector<std::int64_t> padded_group_sizes(Int4Layout layout, const Tensor& scales, const Int4Rule* rule) const {
    std::vector<std::int64_t> candidates{32, 64, 128, in_}, fitting;
    if (rule && rule->group != 0) candidates = {rule->group == -1 ? in_ : rule->group};
    for (const std::int64_t group : candidates) {
      const bool known = !fitting.empty() && fitting.back() == group;
      if (!known && in_ % group == 0 && scales.shape == shapes_of(layout, out_, in_, group).scales) {
        fitting.push_back(group);
      }
    }
    return fitting;
  }

  /// The gemv layouts pad their groups. The shape determines the group size only if exactly one usual size fits.
  std::int64_t padded_group_size(Int4Layout layout, const Tensor& scales, const Int4Rule* rule) const {
    if (rule && rule->group != 0) return rule->group == -1 ? in_ : rule->group;
    const std::vector<std::int64_t> fitting = padded_group_sizes(layout, scales, rule);
    if (fitting.size() == 1) return fitting.front();
    throw Error("quant.unknown-group-size",
                text(where_, ": '", scales.name, "' ", shape_text(scales.shape), " is padded and fits ",
                     fitting.empty() ? "no usual group size" : "several group sizes",
                     "; expected config.json or quant_config.json to state one, found neither"),
                "Write quant_config.json next to the weights: {\"w_bit\": 4, \"q_group_size\": 128, \"zero_point\": "
                "true, \"version\": \"gemv\"}");
  }

  // compressed-tensors. The tensors determine a layer's config group; target patterns are not evaluated.

  StoredLinear compressed(const Tensor& codes) const {
    check_method(Method::compressed_tensors, codes, "compressed-tensors");
    Int4Tensor layer = layer_of(codes);
    layer.layout = Int4Layout::packed_rows;
    layer.scales = &need(codes, {".weight_scale"});
    layer.zeros = find(".weight_zero_point");
    if (const Tensor* shape = find(".weight_shape")) check_stated_shape(*shape);
    const Int4Rule* rule = config_group(layer);
    layer.group = group_size(rule, *layer.scales, 1);
    if (!layer.zeros && rule && !rule->symmetric.value_or(true)) need(codes, {".weight_zero_point"});
    return checked(layer);
  }

  /// The config group that fits the tensors; otherwise the first one, for the error message.
  const Int4Rule* config_group(const Int4Tensor& layer) const {
    if (settings().rules.empty()) return nullptr;
    const std::int64_t groups = layer.scales->shape.size() == 2 ? layer.scales->shape[1] : 0;
    for (const Int4Rule& rule : settings().rules) {
      const std::int64_t group = rule.group == -1 ? in_ : rule.group;
      const bool fits = group == 0 || (in_ % group == 0 && groups == in_ / group);
      if (fits && rule.symmetric.value_or(true) == (layer.zeros == nullptr)) return &rule;
    }
    return &settings().rules.front();
  }

  // Quark (AMD).

  StoredLinear quark(const Tensor& codes) const {
    check_method(Method::quark, codes, "Quark");
    if (settings().method == Method::none) {
      throw Error(
          "quant.no-config",
          text(where_, ": '", codes.name,
               "' holds 4-bit codes of Quark; expected config.json to state their order and type, found neither"),
          "Copy config.json from the model's original repository");
    }
    const Int4Rule* rule = nullptr;
    for (const Int4Rule& candidate : settings().rules) {
      if (candidate.layers.empty() || matches(candidate.layers, module_)) {
        rule = &candidate;
        break;
      }
    }
    if (rule && !rule->fault.empty()) {
      throw Error("quant.unsupported-setting",
                  text(where_, ": '", settings().file, "', ", rule->name, " has ", rule->fault),
                  "Use a checkpoint with 4-bit integer weights and no quantized activations");
    }
    Int4Tensor layer = layer_of(codes);
    layer.layout = settings().reordered ? Int4Layout::quark_reorder : Int4Layout::quark_order;
    layer.twos_complement = rule && rule->twos_complement;
    layer.scales = &need(codes, {".weight_scale", ".weight_quantizer.scale", ".qscales"});
    layer.zeros = find_any({".weight_zero_point", ".weight_quantizer.zero_point", ".qqzeros"});
    if (!layer.zeros && !(rule && rule->symmetric.value_or(false))) need(codes, {".weight_zero_point"});
    layer.group = group_size(rule, *layer.scales, 0);
    return checked(layer);
  }
};

}  // namespace detail

SLM_INLINE StoredLinear linear_source(const Checkpoint& checkpoint, const std::string& module, std::int64_t out,
                                      std::int64_t in) {
#if defined(SLM_NO_FOLDERS)  // GGUF's quantized matrices are tensors of blocks
  return checkpoint.tensor(module + ".weight", {out, in});
#else
  return detail::LinearSearch(checkpoint, module, out, in).run();
#endif
}

}}
