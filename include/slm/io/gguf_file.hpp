// GgufFile: a memory-mapped GGUF model, with all shards of a split one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/folder.hpp"
#include "slm/core/os/mapping_guard.hpp"
#include "slm/core/os/path.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/gguf.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm { inline namespace v0_1 {

class GgufFile {
 public:
  /// Opens a file. For a split model: the first shard; the others must be in the same folder.
  explicit GgufFile(const std::filesystem::path& path) : path_(path) {
    shards_.emplace_back(path);
    if (const int count = fields().integer("split.count", 0, 65535, 1); count > 1) open_shards(count);
    gather_tensors();
  }

  /// A complete model in memory, which the caller must keep alive. name: for messages.
  GgufFile(std::span<const std::byte> bytes, const std::string& name) : path_(path_of(name)) {
    shards_.emplace_back(bytes, name);
    gather_tensors();
  }

  const std::filesystem::path& path() const { return path_; }

  /// See MappedFile.
  void check_unchanged() const {
    for (const Shard& shard : shards_) {
      if (shard.file) shard.file->check_unchanged();
    }
  }

  /// The model's metadata, which are in the first shard.
  const GgufFields& fields() const { return shards_.front().contents.fields; }

  /// The tensors of all shards, sorted by name.
  const std::vector<const GgufTensor*>& tensors() const { return tensors_; }

  /// Returns null if there is none.
  const GgufTensor* find(std::string_view name) const {
    const auto found =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const auto* tensor, std::string_view wanted) { return tensor->name < wanted; });
    return found == tensors_.end() || (*found)->name != name ? nullptr : *found;
  }

 private:
  struct Shard {
    explicit Shard(const std::filesystem::path& path)
        : file(path), contents(parse_gguf(file->bytes(), path.string())) {}
    Shard(std::span<const std::byte> bytes, const std::string& name) : contents(parse_gguf(bytes, name)) {}

    std::optional<MappedFile> file;
    GgufContents contents;
  };

  void gather_tensors() {
    for (const Shard& shard : shards_) {
      for (const GgufTensor& tensor : shard.contents.tensors) tensors_.push_back(&tensor);
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                          [](const auto* a, const auto* b) { return a->name == b->name; });
    if (twice != tensors_.end()) {
      throw Error("gguf.duplicate-tensor",
                  text("'", path_.string(), "' has the tensor ", quote((*twice)->name), " twice"),
                  "The file is damaged: download it again, or convert the model again");
    }
    if (shards_.size() > 1) check_total();
  }

  /// The part of a shard's name before its suffix.
  static std::string mark_of(int shard, int count) {
    const auto five_digits = [](int number) {
      const std::string digits = std::to_string(number);
      return std::string(5 - digits.size(), '0') + digits;
    };
    return text("-", five_digits(shard + 1), "-of-", five_digits(count));
  }

  void open_shards(int count) {
    const GgufFields& first = fields();
    const std::string name = path_.filename().string();
    const int number = first.integer("split.no", 0, 65534);
    const std::string mark = mark_of(number, count);
    const std::size_t marked = name.rfind(mark);
    const bool is_named = marked != name.npos && marked > 0;
    const std::string base = is_named ? name.substr(0, marked) : "NAME";
    const std::string suffix = is_named ? name.substr(marked + mark.size()) : ".gguf";
    if (number != 0) {
      throw Error("gguf.not-first-shard",
                  text("'", path_.string(), "' is shard ", number + 1, " of ", count, " of a split model"),
                  text("Pass the first one, '", base, mark_of(0, count), suffix, "'"));
    }
    if (!is_named) {
      throw Error("gguf.shard-name",
                  text("'", path_.string(), "' is the first of ", count,
                       " shards, whose names are derived from its own, but its name lacks '", mark, "'"),
                  "Restore the published names of the shards");
    }
    const int total = first.integer("split.tensors.count", 0, 1 << 30);
    for (int shard = 1; shard < count; ++shard) {
      const std::filesystem::path path = path_.parent_path() / path_of(base + mark_of(shard, count) + suffix);
      if (!file_exists(path)) {
        throw Error("gguf.missing-shard", text("'", path.string(), "' is missing: shard ", shard + 1, " of ", count),
                    "Download every shard into one folder");
      }
      shards_.emplace_back(path);
      const GgufFields& fields = shards_.back().contents.fields;
      check_same(fields, "split.no", shard);
      check_same(fields, "split.count", count);
      check_same(fields, "split.tensors.count", total);
    }
  }

  static void check_same(const GgufFields& fields, std::string_view key, int expected) {
    if (const int found = fields.integer(key, 0, 1 << 30); found != expected) {
      throw Error("gguf.other-shard",
                  text("'", fields.file(), "' says ", key, " ", found, ", expected ", expected,
                       ": it belongs to another model, or is another shard with a wrong name"),
                  "Download every shard of one model again");
    }
  }

  void check_total() const {
    const int total = fields().integer("split.tensors.count", 0, 1 << 30);
    if (tensors_.size() != static_cast<std::size_t>(total)) {
      throw Error(
          "gguf.shard-tensors",
          text("the shards of '", path_.string(), "' hold ", tensors_.size(), " tensors, the first one states ", total),
          "Download every shard of one model again");
    }
  }

  std::filesystem::path path_;
  std::vector<Shard> shards_;
  std::vector<const GgufTensor*> tensors_;  // sorted by name
};

namespace detail {

/// Detects GGUF by the first bytes, independent of the name.
inline bool is_gguf(const std::filesystem::path& path) { return first_bytes(path, 4) == "GGUF"; }

/// Whether a file name is that of a shard other than the first.
inline bool is_later_shard(std::string_view name) {
  const std::size_t of = name.rfind("-of-");
  if (of == name.npos || of < 6 || name[of - 6] != '-') return false;
  const std::string_view number = name.substr(of - 5, 5), count = name.substr(of + 4, 5), suffix = name.substr(of + 4);
  const auto is_number = [](std::string_view part) {
    return part.size() == 5 && part.find_first_not_of("0123456789") == part.npos;
  };
  return is_number(number) && is_number(count) && number != "00001" && (suffix.size() == 5 || suffix[5] == '.');
}

}  // namespace detail

/// Calls use(fields) with a file's metadata, valid during the call. Throws io.file-changed.
template <class Use>
auto read_gguf_fields(const std::filesystem::path& path, Use&& use) {
  const detail::BusErrorsTaken taken;
  const GgufFile file(path);
  auto result = std::forward<Use>(use)(file.fields());
  file.check_unchanged();
  return result;
}

/// The GGUF file of a path: the file itself, or the only model in a folder without safetensors. None if there is no
/// such file. Throws Error if a folder has several.
inline std::optional<std::filesystem::path> gguf_of(const std::filesystem::path& model) {
  namespace fs = std::filesystem;
  std::error_code failure;
  if (!fs::is_directory(model, failure)) {
    return detail::is_gguf(model) ? std::optional{model} : std::nullopt;
  }
  std::vector<std::string> found;
  for (const std::string& name : names_in(model, failure)) {
    if (path_of(name).extension() == ".safetensors" || name == "model.safetensors.index.json") return std::nullopt;
    if (!detail::is_later_shard(name)) found.push_back(name);
  }
  std::erase_if(found, [&model](const std::string& name) { return !detail::is_gguf(model / path_of(name)); });
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return model / path_of(found.front());
  std::sort(found.begin(), found.end());
  std::string names;
  for (const std::string& name : found) names += text(names.empty() ? "" : ", ", quote(name));
  throw Error("checkpoint.several-gguf",
              text("'", model.string(), "': expected one GGUF model, found several: ", names),
              "Name one of the files instead of the folder");
}

namespace detail {

/// Throws checkpoint.missing-tensor.
inline const GgufTensor& gguf_tensor(const GgufFile& file, std::string_view name) {
  if (const GgufTensor* found = file.find(name)) return *found;
  throw Error("checkpoint.missing-tensor", text("'", file.fields().file(), "' has no tensor '", name, "'"),
              "Convert the model again, or get its file from another source");
}

/// The rows of a matrix. Throws checkpoint.missing-tensor, checkpoint.wrong-shape.
inline int gguf_rows(const GgufFile& file, std::string_view name) {
  const GgufTensor& found = gguf_tensor(file, name);
  if (found.shape.size() == 2 && found.shape[0] >= 1 && found.shape[0] <= 1 << 24)
    return static_cast<int>(found.shape[0]);
  throw Error(
      "checkpoint.wrong-shape",
      text("'", file.fields().file(), "': tensor '", name, "' is ", shape_text(found.shape), ", expected a matrix"),
      "Convert the model again, or get its file from another source");
}

/// One positive number per rotary frequency, from a tensor. stills: numbers from 1e30 on mean that a pair does not
/// turn.
inline std::vector<float> gguf_divisors(const GgufFile& file, std::string_view name, int rotary_dim,
                                        bool stills = false) {
  const GgufTensor& found = gguf_tensor(file, name);
  const std::vector<std::int64_t> expected{rotary_dim / 2};
  if (found.shape != expected || found.type->dtype != DType::f32) {
    throw Error("checkpoint.wrong-shape",
                text("'", file.fields().file(), "': tensor '", name, "' is ", found.type->name, " ",
                     shape_text(found.shape), ", expected F32 ", shape_text(expected)),
                "Convert the model again, or get its file from another source");
  }
  std::vector<float> values(static_cast<std::size_t>(expected[0]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_unaligned<float>(found.bytes + i * sizeof(float));
    if (stills && values[i] >= 1e30f) {
      values[i] = std::numeric_limits<float>::infinity();
    } else if (!(values[i] >= 1e-3f && values[i] <= 1e6f)) {
      throw Error("gguf.bad-frequencies",
                  text("'", file.fields().file(), "': '", name, "' [", i, "] is ", values[i],
                       ", expected a number of 0.001..1000000"),
                  "Convert the model again, or get its file from another source");
    }
  }
  return values;
}

}  // namespace detail

}}
