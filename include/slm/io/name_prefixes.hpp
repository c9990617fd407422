// Detects the prefixes of a checkpoint's tensor names.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/family.hpp"

namespace slm { inline namespace v0_1 {

/// Usually "model." and empty. Both are empty in a file saved without the head. In multimodal models they are
/// "language_model.model." and "language_model.".
struct NamePrefixes {
  std::string model;  // prefix of every module except the head
  std::string head;
};

using TensorMap = std::map<std::string, const Tensor*, std::less<>>;

/// Whether a module's weight is present, as floats or codes.
inline bool stores(const TensorMap& tensors, std::string_view module) {
  return tensors.contains(text(module, ".weight")) || tensors.contains(text(module, ".qweight")) ||
         tensors.contains(text(module, ".weight_packed"));
}

namespace detail {

/// The family's own prefix or none, if layers have it. Otherwise the prefix of both the first layer and the embedding:
/// image or audio towers have no such embedding.
inline std::string find_model_prefix(const TensorMap& tensors, const TensorTable& table) {
  const std::size_t number = table.layer.find("{}");
  const std::string_view layers = table.layer.substr(0, number);
  for (const std::string_view prefix : {table.prefix, std::string_view{}}) {
    const std::string stem = text(prefix, layers);
    const auto first = tensors.lower_bound(stem);
    if (first != tensors.end() && first->first.starts_with(stem)) return std::string{prefix};
  }
  std::set<std::string> with_layers, whole;
  for (const std::string_view part : {table.attention_out, table.down, table.mixer_out}) {  // of the first layer
    if (part.empty()) continue;
    const std::string module = text(".", layers, 0, table.layer.substr(number + 2), part, ".");
    for (const auto& [name, tensor] : tensors) {
      const std::size_t at = name.find(module);
      if (at == std::string::npos) continue;
      const std::string& prefix = *with_layers.insert(name.substr(0, at + 1)).first;
      if (stores(tensors, text(prefix, table.embedding))) whole.insert(prefix);
    }
  }
  const std::set<std::string>& found = whole.empty() ? with_layers : whole;
  return found.size() == 1 ? *found.begin() : std::string{};
}

}  // namespace detail

/// The head's prefix is the longest prefix of the model's prefix with a head. Without a head it is the part before the
/// family's own prefix.
inline NamePrefixes find_prefixes(const TensorMap& tensors, const TensorTable& table) {
  NamePrefixes found{detail::find_model_prefix(tensors, table), {}};
  for (std::string head = found.model;;
       head.erase(head.rfind('.') + 1)) {  // the whole prefix if there is no other part
    if (stores(tensors, text(head, table.head))) return {found.model, head};
    if (head.empty()) break;
    head.pop_back();
  }
  if (found.model.ends_with(text(".", table.prefix))) {
    found.head = found.model.substr(0, found.model.size() - table.prefix.size());
  }
  return found;
}

}}
