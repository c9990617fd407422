// CheckpointWriter: writes rounded blocks and all other tensors of a model as parts of an output folder.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "slm/awq/encode_blocks.hpp"
#include "slm/awq/int4_pack.hpp"
#include "slm/awq/options.hpp"
#include "slm/awq/output_folder.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/model/weights.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

class CheckpointWriter {
 public:
  /// type: of scales and of floating-point tensors, F16 or BF16.
  CheckpointWriter(const Checkpoint& checkpoint, const OutputFolder& folder, const Rounding& rounding,
                   const Options& options, DType type)
      : checkpoint_(checkpoint), folder_(folder), rounding_(rounding), output_(options.output), type_(type) {
    checkpoint.check_head();
    if (options.int8_head) head_ = head_of(checkpoint);
  }

  /// The weight of the head, which is the embedding's if they are tied.
  static TensorName head_of(const Checkpoint& checkpoint) {
    const bool tied = checkpoint.settings().tied_embeddings;
    return checkpoint.names().weights(tied ? Role::embedding : Role::head).front();
  }

  static std::string part_of(int layer) { return text("layer-", layer); }

  void write_layer(const FloatLayer& layer, int index) const {
    std::vector<OwnedTensor> owned;
    layer.for_each(
        names(),
        [&](const FloatLinear& linear, const TensorName& weight, std::int64_t first) {
          add_weight(owned, linear, weight, first);
        },
        [&](const TensorName& name, const float* values) { owned.push_back(stored(name, values)); });
    const std::vector<Tensor> tensors(owned.begin(), owned.end());
    write(part_of(index), tensors);
  }

  /// Adds a block, written now or by an earlier run, to the result.
  void count_layer(const FloatLayer& layer, int index) {
    parts_.push_back(part_of(index));
    for (const auto& [name, tensor] : Safetensors(folder_.file_of(parts_.back())).tensors) replaced_.insert(name);
    for (const FloatLinear* linear : layer.linears()) {
      for (const TensorName& weight : linear->parts) replaced_.insert(weight.name);
    }
  }

  /// Writes embedding, head, last norm and all other tensors outside the blocks; omits a second copy of a tied table.
  /// Returns the bytes of all tensors.
  std::uint64_t finish(const Report& report) {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      const bool copy_of_table = checkpoint_.settings().tied_embeddings && name == head_name().name &&
                                 names().weights(Role::embedding).front().name != name;
      if (!replaced_.contains(name) && !copy_of_table) write_rest(*tensor);
    }
    return folder_.finish(parts_, OwnedJson(config(report)), companions_of(checkpoint_.folder()));
  }

 private:
  void add_weight(std::vector<OwnedTensor>& owned, const FloatLinear& linear, const TensorName& weight,
                  std::int64_t first) const {
    if (!rounding_.fits(linear)) {
      owned.push_back(stored(weight, linear.weight.data() + first * linear.in));
      return;
    }
    const Int4Packing packing{.layout = output_ == Output::awq ? Int4Layout::awq_gemm : Int4Layout::packed_rows,
                              .scale_dtype = type_,
                              .symmetric = rounding_.quantizer.symmetric};
    const Int4Rows rows = rounding_.round(linear, first, weight.shape.at(0));
    for (OwnedTensor& tensor : pack_int4(rows, weight.module(), packing)) owned.push_back(std::move(tensor));
  }

  /// Converts values to a tensor of the output's type.
  OwnedTensor stored(const TensorName& name, const float* values) const {
    OwnedTensor tensor(name.name, type_, name.shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      if (type_ == DType::f16 && std::abs(values[i]) > 65504) {
        throw Error("quantize.overflow",
                    text("'", name.name, "' holds ", values[i], ", which exceeds the F16 range of 65504"),
                    "Write compressed-tensors, which keeps BF16");
      }
      tensor.set_float(i, values[i]);
    }
    return tensor;
  }

  /// A part made from a file that has changed is removed.
  void write(const std::string& part, std::span<const Tensor> tensors) const {
    folder_.write(part, tensors);
    try {
      checkpoint_.check_unchanged();
    } catch (...) {
      folder_.remove(part);
      throw;
    }
  }

  void write_rest(const Tensor& tensor) {
    const std::string part = text("rest-", parts_.size());
    parts_.push_back(part);
    if (folder_.has(part)) return;
    if (tensor.name == head_.name) return write(part, std::array<Tensor, 1>{in_blocks(tensor)});
    const bool floating = tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
    if (!floating || tensor.dtype == type_) return write(part, std::array{tensor});
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    write(part, std::array<Tensor, 1>{stored({tensor.name, tensor.shape}, values.data())});
  }

  /// The head as rows of bytes that hold Q8_0 blocks.
  OwnedTensor in_blocks(const Tensor& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    const std::vector<std::byte> bytes = encode_blocks(DType::q8_0, values, tensor.name, *rounding_.pool);
    OwnedTensor rows(tensor.name, DType::u8,
                     {tensor.shape[0], static_cast<std::int64_t>(bytes.size()) / tensor.shape[0]});
    std::copy(bytes.begin(), bytes.end(), rows.storage.get());
    return rows;
  }

  Json config(const Report& report) const {
    OwnedJson config = read_json_object(checkpoint_.folder() / "config.json");
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = type_ == DType::f16 ? "float16" : "bfloat16";
    // Writes the tie that was read from the tensors, even if the original config differs.
    if (!checkpoint_.settings().tied_embeddings) config["tie_word_embeddings"] = false;
    std::vector<std::string> floating;
    for (const std::string& weight : report.left_in_float) floating.push_back(TensorName{weight, {}}.module());
    Json& quantization = new_member(config, "quantization_config");
    if (output_ == Output::awq) {
      add_awq(quantization, report, floating);
    } else {
      add_compressed(quantization, report, std::move(floating));
    }
    return config.take();
  }

  void add_awq(Json& config, const Report& report, const std::vector<std::string>& floating) const {
    config["quant_method"] = "awq";
    config["bits"] = 4;
    config["group_size"] = report.group;
    config["zero_point"] = !rounding_.quantizer.symmetric;
    config["version"] = "gemm";
    config["backend"] = "autoawq";
    config["do_fuse"] = false;
    config["modules_to_not_convert"] = nullptr;
    if (!floating.empty()) set_list(config, "modules_to_not_convert", floating);
  }

  void add_compressed(Json& config, const Report& report, std::vector<std::string> ignored) const {
    ignored.push_back(head_name().module());
    config["quant_method"] = "compressed-tensors";
    config["format"] = "pack-quantized";
    config["quantization_status"] = "compressed";
    set_list(config, "ignore", ignored);
    Json& group = new_member(new_member(config, "config_groups"), "group_0");
    set_list(group, "targets", std::array{"Linear"});
    group["input_activations"] = group["output_activations"] = nullptr;
    const bool channels = report.group == whole_row;
    Json& weights = new_member(group, "weights");
    weights["num_bits"] = 4;
    weights["type"] = "int";
    weights["symmetric"] = rounding_.quantizer.symmetric;
    weights["strategy"] = channels ? "channel" : "group";
    weights["group_size"] = nullptr;
    if (!channels) weights["group_size"] = report.group;
    weights["dynamic"] = false;
    weights["observer"] = "minmax";
  }

  const TensorNames& names() const { return checkpoint_.names(); }

  /// The name of the head, or the name that a tied model's head would have.
  TensorName head_name() const { return names().untied().weights(Role::head).front(); }

  const Checkpoint& checkpoint_;
  const OutputFolder& folder_;
  Rounding rounding_;
  Output output_;
  DType type_;
  TensorName head_;                 // head to write in 8 bits; empty name: none
  std::vector<std::string> parts_;  // parts of the output, in order
  std::set<std::string> replaced_;  // tensors of the checkpoint that the blocks' parts replace
};

}}}
