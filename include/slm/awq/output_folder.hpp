// OutputFolder: a model folder that is written atomically from parts that survive an interruption.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/json.hpp"
#include "slm/io/path_name.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/io/write_file.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Parts are collected in FOLDER.partial. A later run with the same request continues an interrupted one.
class OutputFolder {
 public:
  /// request: everything that determines the bytes of the result. Throws quantize.output-exists,
  /// quantize.other-request.
  OutputFolder(std::filesystem::path folder, const Json& request)
      : folder_(std::move(folder)), work_(slm::detail::partial_path(folder_)) {
    namespace fs = std::filesystem;
    if (file_exists(folder_)) {
      throw Error("quantize.output-exists", text("'", folder_.string(), "' exists already"),
                  "Name a new folder, or remove this one");
    }
    std::error_code failure;
    fs::create_directories(work_, failure);
    if (failure) throw unwritable(work_, failure);
    const fs::path mark = work_ / "request.json";
    if (!file_exists(mark)) {
      write_text_file(mark, request.dump(1) + "\n");
    } else if (OwnedJson(read_json_object(mark)) != request) {
      throw Error("quantize.other-request",
                  text("'", work_.string(), "' has parts of another model, text or set of options"),
                  "Repeat that request to finish it, or remove the folder");
    }
  }

  std::filesystem::path file_of(const std::string& part) const { return work_ / path_of(part + ".safetensors"); }

  bool has(const std::string& part) const { return file_exists(file_of(part)); }

  void write(const std::string& part, std::span<const Tensor> tensors) const {
    write_safetensors(file_of(part), tensors);
  }

  void remove(const std::string& part) const {
    std::error_code ignored;
    std::filesystem::remove(file_of(part), ignored);
  }

  /// Joins the named parts into model.safetensors, or into shards of at most most_bytes bytes with an index. Adds
  /// config.json and copies of `files`, then renames the folder. Returns the bytes of all tensors.
  std::uint64_t finish(const std::vector<std::string>& parts, const Json& config,
                       const std::vector<std::filesystem::path>& files,
                       std::uint64_t most_bytes = 5'000'000'000) const {
    namespace fs = std::filesystem;
    const fs::path result = work_ / "result";
    std::error_code failure;
    remove_tree(result);
    fs::create_directory(result, failure);
    if (failure) throw unwritable(result, failure);
    const std::uint64_t total = join(parts, result, most_bytes);
    write_text_file(result / "config.json", config.dump(2) + "\n");
    for (const fs::path& file : files) copy_companion(file, result);
    fs::rename(result, folder_, failure);
    if (failure) throw unwritable(folder_, failure);
    remove_tree(work_);  // the result is complete even if this fails
    return total;
  }

 private:
  std::uint64_t join(const std::vector<std::string>& parts, const std::filesystem::path& result,
                     std::uint64_t most_bytes) const {
    std::vector<Safetensors> opened;
    std::vector<Tensor> tensors;
    for (const std::string& part : parts) {
      for (const auto& [name, tensor] : opened.emplace_back(file_of(part)).tensors) tensors.push_back(tensor);
    }
    const auto total = write_weights(result, tensors, most_bytes, [](const Tensor& tensor) { return tensor.bytes; });
    for (const Safetensors& part : opened) part.file.check_unchanged();
    return total;
  }

  std::filesystem::path folder_;
  std::filesystem::path work_;
};

}}}
