// merge_adapter: adds an adapter to a floating-point model and writes the resulting checkpoint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/adapted_product.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/path_name.hpp"
#include "slm/io/peft.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/io/write_file.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 {

struct MergeReport {
  int changed = 0;          // number of changed tensors
  std::uint64_t bytes = 0;  // bytes of all tensors
  bool untied = false;      // embedding and head were tied and are separate now
};

namespace detail {

class Merge {
 public:
  Merge(const std::filesystem::path& model, const std::filesystem::path& adapter) : checkpoint_(model) {
    if (checkpoint_.gguf()) {
      throw refused("a GGUF file", "Merge into the model's Hugging Face folder, then convert the result to GGUF");
    }
    if (checkpoint_.quantization().is_stated()) throw quantized();
    if (checkpoint_.config().mixture.experts != 0) throw refused("a mixture of experts", "Load the adapter beside it");
    adapter_ = read_peft(adapter, checkpoint_);
    name_tensors();
  }

  MergeReport write(const std::filesystem::path& output, const std::function<void(double)>& progress) {
    namespace fs = std::filesystem;
    const fs::path work = partial_path(output);
    for (const fs::path& path : {output, work}) {
      std::error_code failure;
      if (fs::symlink_status(path, failure).type() == fs::file_type::not_found) continue;
      throw Error("merge.output-exists", text("'", path.string(), "' exists already"),
                  "Name a new folder, or remove this one");
    }
    std::error_code failure;
    fs::create_directories(work, failure);
    if (failure) throw unwritable(work, failure);
    try {
      std::uint64_t done = 0;
      report_.bytes = write_weights(work, tensors_, 5'000'000'000, [&](const Tensor& tensor) {
        if (progress) progress(static_cast<double>(done) / static_cast<double>(bytes_));
        done += tensor.size_bytes;
        return bytes_of(tensor);
      });
      checkpoint_.check_unchanged();
      write_config(work);
      for (const fs::path& file : companions_of(checkpoint_.folder())) copy_companion(file, work);
      fs::rename(work, output, failure);
      if (failure) throw unwritable(output, failure);
    } catch (...) {
      remove_tree(work);
      throw;
    }
    return report_;
  }

 private:
  struct Sum {
    const LowRank* change;
    bool turned;                     // stored [in, out]
    std::vector<std::int64_t> rows;  // see AdaptedPart
  };

  Error refused(const std::string& what, const std::string& advice) const {
    return Error(
        "merge.base",
        text("'", checkpoint_.folder().string(), "' is ", what, "; expected a floating-point Hugging Face folder"),
        advice);
  }

  Error quantized() const {
    return refused("quantized", "Merge into the original floating-point model, then quantize the result");
  }

  /// Determines the output tensors and the change of each. A table shared by embedding and head is split if one of them
  /// changes.
  void name_tensors() {
    const bool tied = checkpoint_.settings().tied_embeddings;
    report_.untied = tied && !(adapter_.of(number_of(AdaptedProduct::embedding)).empty() &&
                               adapter_.of(number_of(AdaptedProduct::head)).empty());
    const TensorNames names = report_.untied ? checkpoint_.names().untied() : checkpoint_.names();
    const auto find = [&](const TensorName& weight, std::int64_t, std::int64_t, std::vector<AdaptedPart> parts) {
      const bool turned = weight.transposed || parts.front().product == number_of(AdaptedProduct::embedding);
      for (AdaptedPart& part : parts) {
        for (const LowRank& change : adapter_.of(part.product)) {
          if (change.first == part.first) sums_[weight.name].push_back({&change, turned, std::move(part.rows)});
        }
      }
    };
    for_each_adapted(names, checkpoint_.config(), find);
    const std::string embedding = names.weights(Role::embedding).front().name;
    const std::string head = report_.untied ? names.weights(Role::head).front().name : std::string{};
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (!report_.untied || (name != embedding && name != head)) add(name, *tensor);
    }
    if (report_.untied) {
      const Tensor* table = checkpoint_.find(checkpoint_.names().weights(Role::embedding).front().name);
      if (table == nullptr) throw quantized();
      add(embedding, *table);
      add(head, *table);
    }
    std::size_t merged = 0;
    for (const Tensor& tensor : tensors_) {
      const auto found = sums_.find(tensor.name);
      if (found == sums_.end() || !is_floating_point(tensor.dtype)) continue;
      merged += found->second.size();
      ++report_.changed;
    }
    if (merged != adapter_.changes.size()) throw quantized();
  }

  void add(const std::string& name, Tensor tensor) {
    tensor.name = name;
    bytes_ += tensor.size_bytes;
    tensors_.push_back(std::move(tensor));
  }

  const std::byte* bytes_of(const Tensor& tensor) {
    const auto found = sums_.find(tensor.name);
    if (found == sums_.end()) return tensor.bytes;
    merged_.assign(tensor.bytes, tensor.bytes + tensor.size_bytes);
    switch (tensor.dtype) {
      case DType::f16: merge<half_t>(tensor, found->second); break;
      case DType::bf16: merge<bfloat16_t>(tensor, found->second); break;
      default: merge<float>(tensor, found->second); break;
    }
    return merged_.data();
  }

  template <class Element>
  void merge(const Tensor& tensor, const std::vector<Sum>& sums) {
    for (const Sum& sum : sums) merge<Element>(tensor, sum);
  }

  /// W + scale * B A in fp32, row by row, rounded once to the stored type.
  template <class Element>
  void merge(const Tensor& tensor, const Sum& sum) {
    const LowRank& change = *sum.change;
    const std::vector<float> down = floats(change, change.down, change.in), up = floats(change, change.up, change.out);
    const std::vector<float>& of_rows = sum.turned ? down : up;     // [rank, rows]
    const std::vector<float>& of_columns = sum.turned ? up : down;  // [rank, columns]
    const std::int64_t rows = sum.turned ? change.in : change.out, columns = sum.turned ? change.out : change.in;
    std::vector<float> weights(static_cast<std::size_t>(columns)), delta(weights.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill(delta.begin(), delta.end(), 0.0f);
      for (std::int64_t j = 0; j < change.rank; ++j) {
        const float factor = change.scale * of_rows[static_cast<std::size_t>(j * rows + r)];
        const float* column = of_columns.data() + j * columns;
        for (std::size_t c = 0; c < delta.size(); ++c) delta[c] += factor * column[c];
      }
      const std::int64_t stored = sum.rows.empty() ? r : sum.rows[static_cast<std::size_t>(r)];
      convert(tensor, stored * columns, columns, weights.data());
      std::byte* out = merged_.data() + stored * columns * std::int64_t{sizeof(Element)};
      for (std::size_t c = 0; c < delta.size(); ++c) {
        const Element value = from_float<Element>(weights[c] + delta[c]);
        if (!std::isfinite(to_float(value))) {
          throw Error("merge.overflow",
                      text("with the adapter, tensor ", quote(tensor.name), " [", stored, ", ", c,
                           "] exceeds the range of ", name_of(tensor.dtype)),
                      "Merge into the model in another type, or use the adapter without merging");
        }
        std::memcpy(out + c * sizeof(Element), &value, sizeof value);
      }
    }
  }

  static std::vector<float> floats(const LowRank& change, const std::byte* matrix, std::int64_t width) {
    Tensor tensor{.name = "adapter", .dtype = change.type, .shape = {change.rank, width}, .bytes = matrix};
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    return values;
  }

  /// Writes the tie that was read from the tensors, even if the original config differs.
  void write_config(const std::filesystem::path& work) const {
    const auto original = checkpoint_.folder() / "config.json";
    OwnedJson config = read_json_object(original);
    const bool tied = checkpoint_.settings().tied_embeddings && !report_.untied;
    if (tied || config.value("tie_word_embeddings", Json()) == false) return copy_companion(original, work);
    config["tie_word_embeddings"] = false;
    write_text_file(work / "config.json", config.dump(2) + "\n");
  }

  const Checkpoint checkpoint_;
  Adapter adapter_;
  std::map<std::string, std::vector<Sum>> sums_;  // by the tensor's name in the output
  std::vector<Tensor> tensors_;
  std::vector<std::byte> merged_;  // the tensor being written
  std::uint64_t bytes_ = 0;
  MergeReport report_;
};

}  // namespace detail

/// Writes the folder `output` atomically: the model with the adapter added to its weights, in their types, and the
/// companion files. Throws merge.base unless the model is a floating-point folder, merge.output-exists, merge.overflow,
/// and errors of reading.
inline MergeReport merge_adapter(const std::filesystem::path& model, const std::filesystem::path& adapter,
                                 const std::filesystem::path& output,
                                 const std::function<void(double)>& progress = {}) {
  return detail::Merge(model, adapter).write(output, progress);
}

}}
