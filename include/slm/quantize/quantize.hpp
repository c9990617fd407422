// quantize: a floating-point model folder and a text -> a 4-bit AWQ model folder, block by block in bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/linear_source.hpp"
#include "slm/model/weights.hpp"
#include "slm/quant/int4_pack.hpp"
#include "slm/quantize/calibration.hpp"
#include "slm/quantize/layer_quantizer.hpp"
#include "slm/quantize/output_folder.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm::quantize {

enum class Output {
  awq,                 // AutoAWQ's gemm layout: what most programs read
  compressed_tensors,  // pack-quantized: vLLM's own; keeps bfloat16
};

struct Options {
  int group =
      0;  // inputs that share a scale; whole_row; 0: the largest of 128, 64, 32 that divides every layer's inputs
  bool symmetric = false;
  bool search = true;  // false: rounding alone, without a calibration text
  bool clip = true;
  Output output = Output::awq;
  CalibrationOptions calibration;
  int search_samples = 16;  // of the calibration sequences, for the losses of the searches; all serve the statistics
  std::function<void(double)> progress = {};  // called with 0..1
};

struct LayerReport {
  int layer = 0;
  std::vector<SearchOutcome> folds;
};

struct Report {
  std::int64_t group = 0;
  std::size_t samples = 0, sequence_length = 0;
  std::vector<LayerReport> layers;                  // of this run; layers done by an earlier one are not repeated
  std::vector<std::string> left_in_float;           // layers whose shape 4-bit groups do not fit
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

namespace detail {

class Quantizer {
 public:
  Quantizer(const std::filesystem::path& model, const std::filesystem::path& output,
            const std::filesystem::path& calibration_text, const Options& options, backend::Cpu device)
      : checkpoint_(model), options_(options), device_(std::move(device)), text_(calibration_text) {
    if (has_int4_layers(checkpoint_) || checkpoint_.quantization().method != QuantizationSettings::Method::none) {
      throw Error("quantize.already-quantized", text("'", model.string(), "' is quantized already"),
                  "Start from the floating-point checkpoint of the model");
    }
    choose_group();
    choose_types();
    output_.emplace(output, request());
  }

  Report run() {
    if (options_.search) {
      CalibrationOptions calibration = options_.calibration;
      calibration.sequence_length = std::min(calibration.sequence_length, checkpoint_.settings().context);
      const Sequences sequences = calibration_sequences(text_, Tokenizer::from(checkpoint_.folder()), calibration);
      report_.samples = sequences.size();
      report_.sequence_length = sequences.front().size();
      for (const auto& sequence : sequences) hidden_.push_back(embedded(sequence));
      runner_.emplace(checkpoint_, device_, static_cast<int>(report_.sequence_length));
    }
    const int layers = checkpoint_.config().layers;
    for (int l = 0; l < layers; ++l) quantize_layer(l);
    for (const auto& [name, tensor] : checkpoint_.tensors()) write_rest(*tensor);
    for (const auto& [name, tensor] : checkpoint_.tensors()) report_.bytes_before += tensor->size_bytes;
    report_.bytes_after = output_->finish(parts_, output_config(), companions());
    return std::move(report_);
  }

 private:
  void choose_group() {
    const ModelConfig& shape = checkpoint_.config();
    const auto divides_all = [&](int group) {
      return shape.hidden % group == 0 && shape.heads * shape.head_dim % group == 0 && shape.ffn % group == 0;
    };
    if (options_.group < whole_row || options_.group > 1 << 20) {
      throw Error("quantize.bad-options", text("expected a group of 1 or more inputs, or -1, found ", options_.group),
                  "128, 64 and 32 are usual");
    }
    report_.group = options_.group;
    if (options_.group == 0) {
      report_.group = 32;
      for (const int group : {64, 128}) {
        if (divides_all(group)) report_.group = group;
      }
    }
  }

  /// AutoAWQ files are F16 throughout; compressed-tensors keeps the checkpoint's own type, BF16 for F32.
  void choose_types() {
    const TensorNames names(checkpoint_.config());
    const DType stored = checkpoint_.tensor(names.attention_norm(0).name, names.attention_norm(0).shape).dtype;
    type_ = options_.output == Output::awq || stored == DType::f16 ? DType::f16 : DType::bf16;
    rounding_ = {.quantizer = {.scale_type = type_ == DType::f16 ? ScaleType::f16 : ScaleType::bf16,
                               .symmetric = options_.symmetric},
                 .group = report_.group,
                 .threads = device_.threads()};
  }

  /// Everything that decides the bytes of the result.
  Json request() const {
    Json files = Json::object();
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint_.folder())) {
      if (!entry.is_regular_file()) continue;
      files[entry.path().filename().string()] = {entry.file_size(), entry.last_write_time().time_since_epoch().count()};
    }
    Json request = {{"version", 1},
                    {"files", files},
                    {"group", report_.group},
                    {"symmetric", options_.symmetric},
                    {"search", options_.search},
                    {"clip", options_.clip},
                    {"output", options_.output == Output::awq ? "awq" : "compressed-tensors"},
                    {"isa", name_of(device_.isa())}};
    if (options_.search) {
      std::uint64_t hash = 0xcbf29ce484222325u;
      const MappedFile text_file(text_);
      for (const std::byte byte : text_file.bytes()) {
        hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
      }
      request["text"] = hash;
      request["samples"] = options_.calibration.samples;
      request["sequence_length"] = options_.calibration.sequence_length;
      request["search_samples"] = options_.search_samples;
    }
    return request;
  }

  Rows embedded(std::span<const Token> tokens) const {
    const TensorName name = stored_embedding(checkpoint_);
    const Tensor& table = checkpoint_.tensor(name.name, name.shape);
    const std::int64_t width = name.shape.at(1);
    Rows x(tokens.size() * static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= checkpoint_.config().vocab) {
        throw Error("quantize.token",
                    text("the tokenizer gives id ", tokens[i], ", the model's vocabulary is 0..",
                         checkpoint_.config().vocab - 1),
                    "Check that tokenizer and weights belong together");
      }
      convert(table, tokens[i] * width, width, x.data() + static_cast<std::int64_t>(i) * width);
    }
    return x;
  }

  void quantize_layer(int index) {
    const std::string part = text("layer-", index);
    const bool done = output_->has(part);
    const int layers = checkpoint_.config().layers;
    FloatLayer layer = FloatLayer::read(checkpoint_, index);
    for (const FloatLinear* linear : layer.linears()) {
      if (!rounding_.fits(*linear)) report_.left_in_float.push_back(linear->parts.front().name);
    }
    LayerInputs inputs;
    if (options_.search && !(done && index + 1 == layers)) advance(layer, inputs, !done);
    if (!done) {
      if (options_.search) {
        LayerQuantizer quantizer(checkpoint_.config(), layer, inputs, *runner_, rounding_);
        report_.layers.push_back({index, quantizer.smooth([&](double share) { tell(index + 0.1 + 0.8 * share); })});
        if (options_.clip) quantizer.clip();
      }
      write_layer(part, layer);
    }
    for (const TensorName* name : {&layer.attention_norm_name, &layer.mlp_norm_name}) written_.insert(name->name);
    for (const FloatLinear* linear : layer.linears()) {
      for (const TensorName& weight : linear->parts) {
        written_.insert(weight.name);
        if (!linear->bias.empty()) written_.insert(TensorNames::bias_of(weight).name);
      }
    }
    parts_.push_back(part);
    tell(index + 1);
  }

  /// Runs the block on every sequence with its original weights, so that later blocks see what they will be compared
  /// with; collects what the searches need.
  void advance(const FloatLayer& layer, LayerInputs& inputs, bool collect) {
    if (collect) {
      const auto start = [&](InputStatistics& input, const FloatLinear& linear) {
        input.start(linear.in, rounding_.group_of(linear.in), options_.clip && rounding_.fits(linear));
      };
      start(inputs.qkv, layer.qkv);
      start(inputs.attention_out, layer.attention_out);
      start(inputs.gate_up, layer.gate_up);
      start(inputs.down, layer.down);
    }
    const std::size_t searched =
        std::min<std::size_t>(hidden_.size(), static_cast<std::size_t>(options_.search_samples));
    std::size_t kept = 0;
    for (std::size_t s = 0; s < hidden_.size(); ++s) {
      const bool keep = collect && kept < searched && s == kept * hidden_.size() / searched;
      Rows& x = hidden_[s];
      Rows mixed, gated;
      const Rows before = keep ? x : Rows{};
      if (collect) inputs.qkv.add(runner_->normalized(x, layer.attention_norm), keep, rounding_.threads);
      Rows attention = runner_->attention(layer, layer.qkv.matrix(), x, mixed);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += attention[i];
      const Rows between = keep ? x : Rows{};
      if (collect) inputs.gate_up.add(runner_->normalized(x, layer.mlp_norm), keep, rounding_.threads);
      Rows mlp = runner_->mlp(layer, layer.gate_up.matrix(), x, gated);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += mlp[i];
      if (collect) {
        inputs.attention_out.add(mixed, keep, rounding_.threads);
        inputs.down.add(gated, keep, rounding_.threads);
      }
      if (!keep) continue;
      ++kept;
      inputs.attention_x.push_back(before);
      inputs.attention_y.push_back(std::move(attention));
      inputs.attention_mixed.push_back(std::move(mixed));
      inputs.mlp_x.push_back(between);
      inputs.mlp_y.push_back(std::move(mlp));
      inputs.mlp_gated.push_back(std::move(gated));
    }
  }

  void write_layer(const std::string& part, const FloatLayer& layer) {
    std::vector<OwnedTensor> owned;
    const Int4Packing packing{.layout = options_.output == Output::awq ? Int4Layout::awq_gemm : Int4Layout::packed_rows,
                              .scale_dtype = type_,
                              .symmetric = options_.symmetric};
    for (const FloatLinear* linear : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      std::int64_t first = 0;
      for (const TensorName& weight : linear->parts) {
        const std::int64_t rows = weight.shape.at(0);
        if (rounding_.fits(*linear)) {
          const std::string module = weight.name.substr(0, weight.name.rfind('.'));
          for (OwnedTensor& tensor : pack_int4(rounding_.round(*linear, first, rows), module, packing)) {
            owned.push_back(std::move(tensor));
          }
        } else {
          owned.push_back(
              stored(weight, std::span(linear->weight).subspan(static_cast<std::size_t>(first * linear->in))));
        }
        if (!linear->bias.empty()) {
          owned.push_back(
              stored(TensorNames::bias_of(weight), std::span(linear->bias).subspan(static_cast<std::size_t>(first))));
        }
        first += rows;
      }
    }
    owned.push_back(stored(layer.attention_norm_name, layer.attention_norm));
    owned.push_back(stored(layer.mlp_norm_name, layer.mlp_norm));
    const std::vector<Tensor> tensors(owned.begin(), owned.end());
    output_->write(part, tensors);
  }

  /// The first elements of `values` as a tensor of the output's type.
  OwnedTensor stored(const TensorName& name, std::span<const float> values) const {
    OwnedTensor tensor(name.name, type_, name.shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      if (type_ == DType::f16 && std::abs(value) > 65504) {
        throw Error("quantize.overflow",
                    text("'", name.name, "' holds ", value, ", which F16 cannot (its largest number is 65504)"),
                    "Write compressed-tensors, which keeps BF16");
      }
      tensor.set_float(i, value);
    }
    return tensor;
  }

  /// Embedding, head, last norm and whatever else belongs to no block; a tied head is left out.
  void write_rest(const Tensor& tensor) {
    if (written_.contains(tensor.name)) return;
    const bool floating = tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
    const TensorNames names(checkpoint_.config());
    if (checkpoint_.settings().tied_embeddings && tensor.name == names.head().name &&
        stored_embedding(checkpoint_).name != tensor.name) {
      return;
    }
    const std::string part = text("rest-", parts_.size());
    parts_.push_back(part);
    if (output_->has(part)) return;
    if (!floating || tensor.dtype == type_) {
      output_->write(part, std::array{tensor});
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    output_->write(part, std::array<Tensor, 1>{stored({tensor.name, tensor.shape}, values)});
  }

  Json output_config() const {
    Json config = read_json_object(checkpoint_.folder() / "config.json");
    const bool awq = options_.output == Output::awq;
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = type_ == DType::f16 ? "float16" : "bfloat16";
    const auto group = report_.group;
    if (awq) {
      Json left = nullptr;
      for (const std::string& name : report_.left_in_float) left.push_back(name.substr(0, name.rfind('.')));
      config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4},
                                       {"group_size", group},   {"zero_point", !options_.symmetric},
                                       {"version", "gemm"},     {"backend", "autoawq"},
                                       {"do_fuse", false},      {"modules_to_not_convert", left}};
      return config;
    }
    Json ignored = {"lm_head"};
    for (const std::string& name : report_.left_in_float) ignored.push_back(name.substr(0, name.rfind('.')));
    Json weights = {{"num_bits", 4},
                    {"type", "int"},
                    {"symmetric", options_.symmetric},
                    {"strategy", group == whole_row ? "channel" : "group"},
                    {"group_size", group == whole_row ? Json() : Json(group)},
                    {"dynamic", false},
                    {"observer", "minmax"}};
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "pack-quantized"},
                                     {"quantization_status", "compressed"},
                                     {"ignore", ignored},
                                     {"config_groups",
                                      {{"group_0",
                                        {{"targets", {"Linear"}},
                                         {"weights", weights},
                                         {"input_activations", nullptr},
                                         {"output_activations", nullptr}}}}}};
    return config;
  }

  /// What other programs expect beside the weights.
  std::vector<std::filesystem::path> companions() const {
    std::vector<std::filesystem::path> files;
    for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                             "added_tokens.json", "vocab.json", "merges.txt", "generation_config.json",
                             "chat_template.json", "chat_template.jinja", "LICENSE"}) {
      if (const auto file = checkpoint_.folder() / name; std::filesystem::exists(file)) files.push_back(file);
    }
    return files;
  }

  void tell(double layers_done) const {
    if (options_.progress) options_.progress(layers_done / checkpoint_.config().layers);
  }

  Checkpoint checkpoint_;
  Options options_;
  backend::Cpu device_;
  std::filesystem::path text_;
  DType type_ = DType::f16;
  Rounding rounding_;
  Report report_;
  std::optional<OutputFolder> output_;
  std::optional<BlockRunner> runner_;
  std::vector<Rows> hidden_;        // residual stream after the blocks so far   [samples]
  std::vector<std::string> parts_;  // of the output, in order
  std::set<std::string> written_;   // tensors of the checkpoint that the blocks' parts replace
};

}  // namespace detail

/// Writes `output`, a folder that must not exist. Peak memory: one block in fp32, its activations on the calibration
/// text, and the residual stream of that text. The same request gives the same bytes; an interrupted one goes on where
/// it stopped. Throws Error ("quantize.…", "io.…").
inline Report quantize(const std::filesystem::path& model, const std::filesystem::path& output,
                       const std::filesystem::path& calibration_text, const Options& options = {},
                       backend::Cpu device = {}) {
  return detail::Quantizer(model, output, calibration_text, options, std::move(device)).run();
}

}  // namespace slm::quantize
