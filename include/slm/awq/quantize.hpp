// quantize: converts a floating-point model folder to a 4-bit AWQ folder with a calibration text, block by block in
// bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/awq/calibration_pass.hpp"
#include "slm/awq/checkpoint_writer.hpp"
#include "slm/awq/layer_quantizer.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/core/os/folder.hpp"
#include "slm/core/os/path.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/linear_source.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

namespace detail {

class Quantizer {
 public:
  Quantizer(const std::filesystem::path& model, const std::filesystem::path& output,
            const std::filesystem::path& calibration_text, const Options& options, backend::Cpu device)
      : checkpoint_(model),
        options_(options),
        device_(std::move(device)),
        reader_{checkpoint_, device_},
        text_(calibration_text) {
    check_model();
    choose_group();
    check_widths();
    const TensorName table = reader_.names.weights(Role::embedding).front();
    const DType stored = checkpoint_.tensor(table.name, table.shape).dtype;
    const DType type = options_.output == Output::awq || stored == DType::f16 ? DType::f16 : DType::bf16;
    rounding_ = {.quantizer = {.scale_type = type == DType::f16 ? ScaleType::f16 : ScaleType::bf16,
                               .symmetric = options_.symmetric},
                 .group = report_.group,
                 .pool = std::make_shared<backend::ThreadPool>(device_.threads())};
    const bool divisors = options_.output == Output::awq && !reader_.names.weights(Role::down_divisor).empty();
    folds_ = folds_of(checkpoint_.config(), checkpoint_.settings(), divisors);
    if (options_.search) {
      pass_.emplace(checkpoint_, device_, rounding_.pool, text_, options_.calibration, options_.search_samples);
      report_.samples = pass_->samples();
      report_.sequence_length = pass_->sequence_length();
    }
    folder_.emplace(output, OwnedJson(request()));  // the last check that can fail
    writer_.emplace(checkpoint_, *folder_, rounding_, options_, type);
  }

  Report run() {
    for (int l = 0; l < checkpoint_.config().layers; ++l) quantize_layer(l);
    for (const auto& [name, tensor] : checkpoint_.tensors()) report_.bytes_before += tensor->size_bytes;
    report_.bytes_after = writer_->finish(report_);
    return std::move(report_);
  }

 private:
  void check_model() const {
    if (checkpoint_.gguf()) {
      throw Error("quantize.gguf", text("'", checkpoint_.folder().string(), "' is a GGUF file"),
                  "Use the Hugging Face folder of the model, in floating point");
    }
    if (has_int4_layers(checkpoint_) || checkpoint_.quantization().is_stated()) {
      throw Error("quantize.already-quantized", text("'", checkpoint_.folder().string(), "' is already quantized"),
                  "Use the floating-point checkpoint of the model");
    }
    check_foldable(checkpoint_);
  }

  void choose_group() {
    const ModelConfig& shape = checkpoint_.config();
    const auto divides_all = [&](int group) {
      return shape.hidden % group == 0 && shape.heads * shape.head_dim % group == 0 && shape.ffn % group == 0;
    };
    if (options_.group < whole_row || options_.group > 1 << 20) {
      throw Error("quantize.bad-options", text("expected a group of 1 or more inputs, or -1, found ", options_.group),
                  "Use 128, 64 or 32");
    }
    report_.group = options_.group;
    if (options_.group != 0) return;
    report_.group = 32;
    for (const int group : {64, 128}) {
      if (divides_all(group)) report_.group = group;
    }
  }

  void check_widths() const {
    const ModelConfig& shape = checkpoint_.config();
    if (options_.int8_head && CheckpointWriter::head_of(checkpoint_).shape.at(1) % values_of_block(DType::q8_0) != 0) {
      throw Error("quantize.unsupported",
                  text("'", checkpoint_.folder().string(), "': a head of ", shape.hidden,
                       " inputs is not divisible into blocks of 32"),
                  "Keep the head in floating point");
    }
    for (const int in : {shape.hidden, shape.heads * shape.head_dim, shape.ffn}) {
      if (in % 8 == 0 && (report_.group == whole_row || in % report_.group == 0)) return;
    }
    throw Error(
        "quantize.unsupported",
        text("'", checkpoint_.folder().string(), "': no layer has a number of inputs that is a multiple of 8 and of ",
             "the group size ", report_.group),
        "Use another --group; -1 makes each row one group");
  }

  /// Adds size and time of every file of the model, with names converted to UTF-8.
  void add_files(Json& files) const {
    namespace fs = std::filesystem;
    std::error_code failure, gone;
    for (const std::string& name : names_in(checkpoint_.folder(), failure)) {
      const fs::path path = checkpoint_.folder() / path_of(name);
      if (!fs::is_regular_file(path, gone)) continue;
      const std::int64_t size = static_cast<std::int64_t>(fs::file_size(path, gone)),
                         changed = fs::last_write_time(path, gone).time_since_epoch().count();
      if (!gone) set_list(files, excerpt(name, std::string::npos), std::array{size, changed});
    }
    if (!failure) return;
    throw Error("io.unreadable", text("cannot list '", checkpoint_.folder().string(), "': ", failure.message()),
                "Check the folder and its permissions");
  }

  /// Everything that determines the bytes of the result.
  Json request() const {
    OwnedJson request = Json::object();
    request["version"] = 1;
    add_files(new_member(request, "files"));
    request["group"] = report_.group;
    request["symmetric"] = options_.symmetric;
    request["search"] = options_.search;
    request["clip"] = options_.clip;
    request["int8_head"] = options_.int8_head;
    request["output"] = options_.output == Output::awq ? "awq" : "compressed-tensors";
    request["isa"] = name_of(device_.isa());
    if (options_.search) {
      request["text"] = hash_of(text_);
      request["samples"] = options_.calibration.samples;
      request["sequence_length"] = options_.calibration.sequence_length;
      request["search_samples"] = options_.search_samples;
    }
    return request.take();
  }

  static std::uint64_t hash_of(const std::filesystem::path& path) {  // FNV-1a
    return read_mapped(path, [](std::string_view text) {
      std::uint64_t hash = 0xcbf29ce484222325u;
      for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
      return hash;
    });
  }

  void quantize_layer(int index) {
    const bool done = folder_->has(CheckpointWriter::part_of(index));
    const bool last = index + 1 == checkpoint_.config().layers;
    FloatLayer layer(reader_, index);
    for (const FloatLinear* linear : layer.linears()) {
      if (rounding_.fits(*linear)) continue;
      for (const TensorName& part : linear->parts) report_.left_in_float.push_back(part.name);
    }
    LayerInputs inputs;
    if (options_.search && !(done && last)) {
      if (!done) inputs.start(layer, rounding_, options_.clip);
      pass_->advance(layer, index, done ? nullptr : &inputs);
    }
    if (!done) {
      if (options_.search) {
        LayerQuantizer quantizer(checkpoint_.config(), layer, inputs, pass_->runner(), rounding_);
        const auto told = [&](double share) { tell(index + 0.1 + 0.8 * share); };
        report_.layers.push_back({index, quantizer.search(folds_, told)});
        quantizer.apply(report_.layers.back().folds);
        if (options_.clip) quantizer.clip();
      }
      writer_->write_layer(layer, index);
    }
    writer_->count_layer(layer, index);
    tell(index + 1);
  }

  void tell(double layers_done) const {
    if (options_.progress) options_.progress(layers_done / checkpoint_.config().layers);
  }

  Checkpoint checkpoint_;
  Options options_;
  backend::Cpu device_;
  WeightReader<Fp32, backend::Cpu> reader_;
  std::filesystem::path text_;
  Rounding rounding_;
  std::vector<Fold> folds_;
  Report report_;
  std::optional<OutputFolder> folder_;
  std::optional<CheckpointWriter> writer_;
  std::optional<CalibrationPass> pass_;
};

}  // namespace detail

/// Writes `output`, a folder that must not exist. Peak memory: one block in fp32, its activations on the calibration
/// text, and the residual stream of that text. The result is deterministic; an interrupted run is continued by an equal
/// request. Throws Error ("quantize.…", "io.…").
inline Report quantize(const std::filesystem::path& model, const std::filesystem::path& output,
                       const std::filesystem::path& calibration_text, const Options& options = {},
                       backend::Cpu device = {}) {
  return detail::Quantizer(model, output, calibration_text, options, std::move(device)).run();
}

}}}
