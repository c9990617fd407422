// ignored_tensors(): what a model's files hold besides the tensors that the model reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "slm/io/checkpoint.hpp"

namespace slm { inline namespace v0_1 {

/// Tensors with a common prefix.
struct IgnoredTensors {
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};

namespace detail {

/// The scales, zero points etc. of a matrix in codes count as read with it.
class ReadNames {
 public:
  explicit ReadNames(const Checkpoint& checkpoint) {
    checkpoint.names().for_each([&](Role, int, const auto& weights, const auto& biases) {
      for (const auto* names : {&weights, &biases}) {
        for (const TensorName& name : *names) add(name);
      }
    });
    for (const char* frequencies : {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (checkpoint.gguf() != nullptr) names_.insert(frequencies);
    }
  }

  bool has(const std::string& name) const {
    return names_.contains(name) || modules_.contains(name.substr(0, name.rfind('.')));
  }

  /// The shortest prefix of whole parts of an ignored name that no read name has, with ".*" if it is not the name.
  /// Numbers become "*".
  std::string group_of(const std::string& name) const {
    std::string group;
    for (std::size_t first = 0, dot = 0; dot != std::string::npos; first = dot + 1) {
      dot = name.find('.', first);
      const std::string part = name.substr(first, dot == std::string::npos ? dot : dot - first);
      const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      group += (first == 0 ? "" : ".") + (number ? "*" : part);
      if (dot != std::string::npos && !prefixes_.contains(name.substr(0, dot))) return group + ".*";
    }
    return group;
  }

 private:
  void add(const TensorName& name) {
    names_.insert(name.name);
    if (name.name.ends_with(".weight") && name.shape.size() == 2) modules_.insert(name.module());
    for (std::size_t dot = name.name.find('.'); dot != std::string::npos; dot = name.name.find('.', dot + 1))
      prefixes_.insert(name.name.substr(0, dot));
  }

  std::set<std::string, std::less<>> names_, modules_, prefixes_;
};

}  // namespace detail

/// By prefix, such as "model.visual.*" of a multimodal model, "mtp.*" of layers for further predicted tokens, or
/// "model.layers.*.self_attn.rotary_emb.*".
inline std::map<std::string, IgnoredTensors> ignored_tensors(const Checkpoint& checkpoint) {
  const detail::ReadNames read(checkpoint);
  std::map<std::string, IgnoredTensors> groups;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (read.has(name)) continue;
    IgnoredTensors& group = groups[read.group_of(name)];
    ++group.count;
    group.bytes += tensor->size_bytes;
  }
  return groups;
}

}}
