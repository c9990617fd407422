// Identifies the models and tasks of a run, so that only the same run continues it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "bench/command/baseline/weights_digest.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm::bench::speculative {

inline std::string digest_of(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  Sha256 hash;
  hash.update(mapped.bytes());
  mapped.check_unchanged();
  return "sha256:" + hash.finish();
}

/// The storage type of most weights, as tables name it: "BF16", "INT4", "Q4_K".
inline std::string precision_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool floating = is_floating_point(tensor->dtype);
    std::string type = floating || is_blocked(tensor->dtype) ? std::string{name_of(tensor->dtype)} : "INT4";
    if (floating && type.front() == 'F') type = "FP" + type.substr(1);
    bytes[type] += tensor->size_bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "?" : most->first;
}

/// Digests of the files that determine a model's logits.
inline Json identity_of_model(const std::filesystem::path& folder) {
  const Checkpoint checkpoint(folder);
  return {{"config", digest_of(checkpoint.gguf() ? checkpoint.gguf()->path() : folder / "config.json")},
          {"weights", weights_digest(checkpoint)},
          {"precision", precision_of(checkpoint)},
          {"vocabulary", checkpoint.config().vocab},
          {"context", checkpoint.settings().context}};
}

}  // namespace slm::bench::speculative
