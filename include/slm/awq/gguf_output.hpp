// write_gguf: converts a floating-point model to a GGUF file with matrices of one quantized type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/awq/encode_blocks.hpp"
#include "slm/awq/gguf_folds.hpp"
#include "slm/awq/options.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/gguf_metadata.hpp"
#include "slm/io/gguf_writer.hpp"
#include "slm/io/path_name.hpp"
#include "slm/model/rope.hpp"
#include "slm/text/chat_sources.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/tokenizer_difference.hpp"
#include "slm/text/tokenizer_gguf_writer.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

namespace detail {

class GgufOutput {
 public:
  GgufOutput(const std::filesystem::path& model, const GgufOptions& options)
      : checkpoint_(model), options_(options), target_(gguf_architecture_for(checkpoint_)) {
    checkpoint_.check_head();
    check_options();
    const bool two_norms = checkpoint_.config().order == BlockOrder::parallel_norms;
    if (two_norms && target_.traits.order != BlockOrder::parallel_norms) throw not_for_gguf();
    if (checkpoint_.config().mixture.experts != 0 || !checkpoint_.config().is_plain()) throw not_for_gguf();
    write_metadata();
    names_ = TensorNames(checkpoint_.config(), checkpoint_.settings(), tensor_table());
    checkpoint_.names().for_each([&](Role role, int layer, const auto& weights, const auto& biases) {
      add(role, layer, weights, names_.weights(role, layer));
      add(role, layer, biases, names_.biases(role, layer));
    });
    add_frequencies();
  }

  /// Folds scales in before rounding.
  void fold(std::vector<LayerReport> layers) {
    report_.layers = std::move(layers);
    folded_ = std::make_unique<FoldedLayers>(checkpoint_, report_.layers);
  }

  GgufReport write(const std::filesystem::path& output) {
    if (file_exists(output)) {
      throw Error("quantize.output-exists", text("'", output.string(), "' exists already"),
                  "Name a new file, or remove this one");
    }
    const bool searches = !options_.calibration_text.empty();
    const double searching = searches ? 0.9 : 0;  // share of the progress
    if (searches) fold(search_folds(checkpoint_, options_, pool_, [&](double share) { tell(searching * share); }));
    std::vector<std::byte> bytes;
    out_.write(output, [&](std::size_t index) {
      bytes = bytes_of_tensor(planned_[index]);
      report_.bytes_after += bytes.size();
      const double share = static_cast<double>(index + 1) / static_cast<double>(planned_.size());
      tell(searching + (1 - searching) * share);
      return std::span<const std::byte>{bytes};
    });
    try {
      checkpoint_.check_unchanged();
      check_same(Checkpoint(output));
      check_tokenizer(output);
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove(output, ignored);
      throw;
    }
    return std::move(report_);
  }

 private:
  struct Planned {
    const Tensor* source = nullptr;  // null: `values` is the tensor
    std::vector<float> values{};
    std::vector<std::int64_t> shape{};  // as written
    DType type = DType::f32;
    bool transposed = false;
    bool grouped = false;           // rows are stored group by group
    float offset = 0;               // of the stored values
    int layer = 0;                  // layer of the tensor, if any
    std::int64_t turned_heads = 0;  // heads whose rows GGUF orders by rotating pairs
  };

  void check_options() const {
    if (options_.type != DType::f32 && !is_encodable(options_.type)) {
      throw Error("quantize.bad-options",
                  text("expected a type that GGUF files can be written in, found ", name_of(options_.type)),
                  "Use q4_0, q4_1, q5_0, q8_0, q4_k or q6_k");
    }
    if (options_.calibration_text.empty()) return;
    if (!gains_from_folds(options_.type)) {
      throw Error("quantize.bad-options", text("scales are searched for q4_0 only, found ", name_of(options_.type)),
                  "Omit the calibration text, or use q4_0");
    }
    check_foldable(checkpoint_);
  }

  void tell(double share) const {
    if (options_.progress) options_.progress(share);
  }

  void write_metadata() {
    if (const GgufFile* file = checkpoint_.gguf()) {
      for (const auto& [key, value] : file->fields().entries()) {
        const bool ours = key == "general.alignment" || key == "general.file_type" ||
                          key == "general.quantization_version" || key.starts_with("split.");
        if (!ours) out_.copy(key, value);
      }
    } else {
      const std::filesystem::path& folder = checkpoint_.folder();
      out_.string("general.architecture", target_.name);
      out_.string("general.type", "model");
      out_.string("general.name", slm::detail::name_of_path(folder));
      write_gguf_metadata(out_, target_.name, checkpoint_.config(), checkpoint_.settings());
      tokenizer_file::write_tokenizer(out_, folder, static_cast<std::size_t>(checkpoint_.config().vocab), target_.name,
                                      checkpoint_.settings().end_tokens);
      write_chat_templates(folder);
    }
    out_.number("general.file_type", file_type());
    out_.number("general.quantization_version", std::uint32_t{2});
  }

  void write_chat_templates(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const chat::Source& source : chat::templates_of_folder(folder)) {
      out_.string(chat::template_key(source.name), source.text);
      if (source.name != "default") names.push_back(source.name);
    }
    if (!names.empty()) out_.strings("tokenizer.chat_templates", names);
  }

  /// The number for the type of most matrices; informational.
  std::uint32_t file_type() const {
    switch (options_.type) {
      case DType::q4_0: return 2;
      case DType::q4_1: return 3;
      case DType::q8_0: return 7;
      case DType::q5_0: return 8;
      case DType::q4_k: return 14;
      case DType::q6_k: return 18;
      default: return 0;
    }
  }

  TensorTable tensor_table() const {
    const bool fused = checkpoint_.names().weights(Role::qkv).size() == 1;
    return (fused ? target_.fused : target_.apart).names;
  }

  /// The head, or an embedding used as the head, gets eight or six bits. Rows that are not multiples of 256 get blocks
  /// of 32 with at least as many bits, as in llama.cpp's files. If those do not fit either, floats stay.
  DType type_of(Role role, std::int64_t inputs) const {
    const bool matrix = role == Role::embedding || is_linear(role);
    if (!matrix || options_.type == DType::f32) return DType::f32;
    const bool is_head = role == Role::head || (role == Role::embedding && checkpoint_.settings().tied_embeddings);
    const bool superblocks = values_of_block(options_.type) == 256;
    const DType wanted = is_head ? (superblocks ? DType::q6_k : DType::q8_0) : options_.type;
    if (inputs % values_of_block(wanted) == 0) return wanted;
    if (inputs % 32 != 0) return DType::f32;
    return wanted == DType::q4_k ? DType::q5_0 : DType::q8_0;
  }

  void add(Role role, int layer, const std::vector<TensorName>& sources, const std::vector<TensorName>& targets) {
    const bool pairs = target_.pairs && role == Role::qkv;
    const ModelConfig& shape = checkpoint_.config();
    if (sources.size() > 1 && targets.size() == 1 && (role == Role::q_norm || role == Role::k_norm)) {
      return add_stacked(sources, targets.front());
    }
    if (sources.size() != targets.size()) throw not_for_gguf();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const TensorName& source = sources[i];
      if (is_optional(role) && !checkpoint_.has(source.name)) continue;
      Planned planned;
      planned.source = &checkpoint_.tensor(source.name, source.shape);
      if (is_blocked(planned.source->dtype)) {
        throw Error("quantize.already-quantized", text("'", checkpoint_.folder().string(), "' is already quantized"),
                    "Use the floating-point checkpoint of the model");
      }
      planned.layer = layer;
      planned.transposed = source.transposed;
      planned.grouped = checkpoint_.names().is_grouped(source);
      const bool norm = role == Role::final_norm || (is_of_layer(role) && role <= Role::k_norm);
      if (norm && source.name.ends_with(".weight") && checkpoint_.names().norms_less_one()) planned.offset = 1;
      planned.shape = source.shape;
      if (source.transposed) std::reverse(planned.shape.begin(), planned.shape.end());
      planned.type = planned.shape.size() == 2 ? type_of(role, planned.shape.back()) : DType::f32;
      if (pairs) {
        planned.turned_heads = sources.size() == 1 ? shape.heads + shape.kv_heads
                               : i == 0            ? shape.heads
                               : i == 1            ? shape.kv_heads
                                                   : 0;
      }
      report_.bytes_before += planned.source->size_bytes;
      if (planned.shape.size() == 2 && (role == Role::embedding || is_linear(role))) {
        ++report_.matrices[name_of(planned.type)];
      }
      plan(targets.at(i).name, std::move(planned));
    }
  }

  /// Norms of single heads become one tensor.
  void add_stacked(const std::vector<TensorName>& sources, const TensorName& target) {
    Planned planned;
    planned.shape = target.shape;
    for (const TensorName& source : sources) {
      const Tensor& tensor = checkpoint_.tensor(source.name, source.shape);
      const std::size_t before = planned.values.size();
      planned.values.resize(before + static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), planned.values.data() + before);
    }
    plan(target.name, std::move(planned));
  }

  void plan(std::string_view name, Planned planned) {
    out_.tensor(name, planned.shape, planned.type);
    planned_.push_back(std::move(planned));
  }

  /// Adds divisors of the rotary frequencies, which GGUF stores as tensors.
  void add_frequencies() {
    const RopeScaling& scaling = checkpoint_.settings().rope_scaling;
    const auto add_factors = [&](std::string_view name, const std::vector<float>& factors) {
      Planned planned;
      planned.values = factors;
      planned.shape = {static_cast<std::int64_t>(factors.size())};
      plan(name, std::move(planned));
    };
    switch (scaling.kind) {
      case RopeScaling::Kind::longrope:
        add_factors("rope_factors_long.weight", scaling.long_factors);
        return add_factors("rope_factors_short.weight", scaling.short_factors);
      case RopeScaling::Kind::divisors: return add_factors("rope_freqs.weight", scaling.short_factors);
      case RopeScaling::Kind::llama3: {
        ModelSettings plain = checkpoint_.settings();
        plain.rope_scaling = {};
        const int width = checkpoint_.config().rotary_dim();
        std::vector<float> factors = inverse_frequencies(width, plain);
        const std::vector<float> scaled = inverse_frequencies(width, checkpoint_.settings());
        for (std::size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
        return add_factors("rope_freqs.weight", factors);
      }
      case RopeScaling::Kind::none:
      case RopeScaling::Kind::linear:
      case RopeScaling::Kind::yarn: return;
    }
  }

  std::vector<std::byte> bytes_of_tensor(const Planned& planned) const {
    std::vector<float> values = planned.source ? values_of(planned) : planned.values;
    if (planned.type != DType::f32) return encode_blocks(planned.type, values, planned.source->name, *pool_);
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  /// [out, in], in GGUF's row order.
  std::vector<float> values_of(const Planned& planned) const {
    const Tensor& source = *planned.source;
    std::vector<float> values(static_cast<std::size_t>(source.elements()));
    if (const float* folded = folded_ ? folded_->find(planned.layer, source.name) : nullptr) {
      std::copy_n(folded, values.size(), values.begin());
    } else {
      convert(source, 0, source.elements(), values.data());
    }
    const auto rows = static_cast<std::size_t>(planned.shape.front());
    const std::size_t width = values.size() / rows;
    if (planned.transposed) {
      std::vector<float> turned(values.size());
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < width; ++c) turned[r * width + c] = values[c * rows + r];
      }
      values = std::move(turned);
    }
    for (float& value : values) value += planned.offset;
    if (planned.grouped) {
      const std::vector<float> stored = values;
      for (std::size_t row = 0; row < rows; ++row) {
        const auto from = static_cast<std::size_t>(checkpoint_.names().stored_row(static_cast<std::int64_t>(row)));
        std::copy_n(stored.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                    values.begin() + static_cast<std::ptrdiff_t>(row * width));
      }
    }
    if (planned.turned_heads == 0) return values;
    std::vector<float> moved = values;
    const auto head = static_cast<std::size_t>(checkpoint_.config().head_dim);
    for (std::size_t row = 0; row < static_cast<std::size_t>(planned.turned_heads) * head; ++row) {
      const std::size_t i = row % head;  // rows (i, i + head / 2) rotate together and are adjacent in the file
      const std::size_t to = row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                  moved.begin() + static_cast<std::ptrdiff_t>(to * width));
    }
    return moved;
  }

  /// Rejects properties that GGUF cannot represent, which would be lost silently.
  void check_same(const Checkpoint& written) const {
    check_ends(written);
    const ModelConfig& config = checkpoint_.config();
    if (written.config() == config && gguf_keeps(config, checkpoint_.settings(), written.settings())) return;
    throw not_for_gguf();
  }

  Error not_for_gguf() const {
    return Error("quantize.not-for-gguf",
                 text("'", checkpoint_.folder().string(), "' has a property that the GGUF architecture '", target_.name,
                      "' cannot represent"),
                 "Use the model's folder directly, or write AWQ");
  }

  /// The sets of end tokens must be equal.
  void check_ends(const Checkpoint& written) const {
    const auto ends_of = [](const Checkpoint& checkpoint) {
      const std::vector<Token>& ends = checkpoint.settings().end_tokens;
      return std::set<Token>(ends.begin(), ends.end());
    };
    const auto listed = [](const std::set<Token>& ends) {
      std::string list;
      for (const Token end : ends) list += text(list.empty() ? "" : ", ", end);
      return list.empty() ? "none" : list;
    };
    const std::set<Token> expected = ends_of(checkpoint_), found = ends_of(written);
    if (found == expected) return;
    throw Error("quantize.not-for-gguf",
                text("'", checkpoint_.folder().string(), "' has the end tokens ", listed(expected),
                     ", but its GGUF file has ", listed(found)),
                "Use the model's folder directly, or write AWQ");
  }

  /// A model that was read from a GGUF file has the metadata of that file.
  void check_tokenizer(const std::filesystem::path& output) const {
    if (checkpoint_.gguf() || !GgufFile(output).fields().has("tokenizer.ggml.model")) return;
    const Tokenizer expected = Tokenizer::from(checkpoint_.folder());
    std::optional<std::string> difference;
    try {
      difference = tokenizer_file::TokenizerComparison(expected, Tokenizer::from(output)).difference();
    } catch (const Error& error) {
      difference = error.what();
    }
    if (!difference) return;
    throw Error("tokenizer.not-for-gguf",
                text("'", checkpoint_.folder().string(), "': the tokenizer changes in a GGUF file: ", *difference),
                "Use the model's folder directly, or write AWQ");
  }

  Checkpoint checkpoint_;
  GgufOptions options_;
  std::shared_ptr<backend::ThreadPool> pool_ = std::make_shared<backend::ThreadPool>(options_.threads);
  GgufArchitecture target_;
  GgufWriter out_;
  TensorNames names_{ModelConfig{}};
  std::vector<Planned> planned_;
  std::unique_ptr<FoldedLayers> folded_;  // null: no folds
  GgufReport report_;
};

}  // namespace detail

/// Converts a floating-point folder or GGUF file to a GGUF file, which must not exist. Norms, biases and position
/// tables stay F32. With a calibration text, scales are searched as for AWQ, and those that lower a block's output
/// error are folded in; the format does not change. Memory: one tensor in fp32; with a text that of quantize(). Throws
/// Error ("quantize.…", "tokenizer.…", "io.…").
inline GgufReport write_gguf(const std::filesystem::path& model, const std::filesystem::path& output,
                             const GgufOptions& options) {
  return detail::GgufOutput(model, options).write(output);
}

}}}
