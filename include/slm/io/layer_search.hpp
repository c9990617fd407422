// LayerSearch: the tensors of one linear layer of a checkpoint, and the checks that all quantization layouts share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_tensor.hpp"
#include "slm/formats/scaled_tensor.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/stored_linear.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class LayerSearch {
 public:
  using Method = QuantizationSettings::Method;

  LayerSearch(const Checkpoint& checkpoint, const std::string& module, std::int64_t out, std::int64_t in)
      : checkpoint_(checkpoint),
        module_(module),
        where_(text("'", checkpoint.folder().string(), "', layer '", module, "'")),
        out_(out),
        in_(in) {}

 protected:
  const Tensor* find(const char* suffix) const { return checkpoint_.find(module_ + suffix); }

  const Tensor* find_any(std::initializer_list<const char*> suffixes) const {
    for (const char* suffix : suffixes) {
      if (const Tensor* tensor = find(suffix)) return tensor;
    }
    return nullptr;
  }

  const StatedQuantization& settings() const { return checkpoint_.quantization(); }

  Error fused_experts(const Tensor& tensor) const {
    return Error("quant.fused-experts",
                 text(where_, ": '", tensor.name, "' ", shape_text(tensor.shape),
                      " holds all experts of a mixture-of-experts layer, which slm does not support"),
                 "Use a dense model; docs/models.md lists them");
  }

  void check_method(Method method, const Tensor& codes, const char* stated) const {
    if (codes.shape.size() == 3) throw fused_experts(codes);
    if (!settings().is_stated() || settings().method == method) return;
    throw Error("quant.config-mismatch",
                text(where_, ": '", codes.name, "' is a tensor of ", stated, ", but '", settings().file,
                     "' describes another method"),
                "Check that config.json belongs to these weights");
  }

  const Tensor& need(const Tensor& codes, std::initializer_list<const char*> suffixes) const {
    if (const Tensor* tensor = find_any(suffixes)) return *tensor;
    throw Error("quant.incomplete-layer",
                text(where_, " has '", codes.name, "' but lacks '", module_, *suffixes.begin(), "'"),
                "Check that all shards are present, or download the checkpoint again");
  }

  /// The stated group size, after comparison with the scales' shape. If none is stated: the size that the scales imply.
  std::int64_t group_size(const Int4Rule* rule, const Tensor& scales, std::size_t axis) const {
    const std::int64_t groups = scales.shape.size() == 2 ? scales.shape[axis] : 0;
    const bool divides = groups > 0 && in_ % groups == 0;
    if (!rule || rule->group == 0) {
      if (divides) return in_ / groups;
      throw Error("quant.wrong-shape",
                  text(where_, ": '", scales.name, "' is ", shape_text(scales.shape), ", which do not divide the ", in_,
                       " inputs"),
                  "Check that config.json belongs to these weights");
    }
    const std::int64_t stated = rule->group == -1 ? in_ : rule->group;
    if (in_ % stated != 0) {
      throw Error("quant.group-size",
                  text(where_, ": in_features ", in_, " is not a multiple of the group size ", stated, " of '",
                       settings().file, "'"),
                  "Use a checkpoint of a group size that divides the layer's inputs");
    }
    if (divides && groups != in_ / stated) {
      throw Error("quant.group-mismatch",
                  text(where_, ": '", settings().file, "' says ", rule->name, " ", rule->group, ", but '", scales.name,
                       "' has ", groups, " groups for ", in_, " inputs, which implies ", in_ / groups),
                  "Check that config.json belongs to these weights");
    }
    return stated;
  }

  StoredLinear checked(Int4Tensor layer) const {
    check_int4(layer, where_);
    return layer;
  }

  void check_stated_shape(const Tensor& tensor) const {
    const bool wide = tensor.dtype == DType::i64;
    if ((!wide && tensor.dtype != DType::i32) || tensor.shape != std::vector<std::int64_t>{2}) {
      throw Error("quant.wrong-dtype",
                  text(where_, ": '", tensor.name, "' is ", name_of(tensor.dtype), " ", shape_text(tensor.shape),
                       ", expected I64 or I32 [2]"),
                  "Download or export the checkpoint again");
    }
    std::vector<std::int64_t> stated;
    for (std::size_t i = 0; i < 2; ++i) {
      stated.push_back(wide ? load_unaligned<std::int64_t>(tensor.bytes + 8 * i)
                            : load_unaligned<std::int32_t>(tensor.bytes + 4 * i));
    }
    if (stated != std::vector{out_, in_}) {
      throw Error("quant.wrong-shape",
                  text(where_, ": '", tensor.name, "' says ", shape_text(stated),
                       ", expected the shape in config.json: [", out_, ", ", in_, "]"),
                  "Check that config.json belongs to these weights");
    }
  }

  Int4Tensor layer_of(const Tensor& codes) const {
    Int4Tensor layer;
    layer.name = module_;
    layer.out = out_;
    layer.in = in_;
    layer.codes = &codes;
    return layer;
  }

  const Checkpoint& checkpoint_;
  const std::string& module_;
  std::string where_;
  std::int64_t out_;
  std::int64_t in_;
};

}  // namespace detail

}}
