// ExpertTensors: the matrices of single experts in tensors that hold those of all experts of a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Replaces such tensors [experts, rows, columns], and biases [experts, rows], in a map by their parts, under the names
/// of single experts' matrices. Parts refer to the bytes of the whole. Throws checkpoint.wrong-shape.
class ExpertTensors {
 public:
  /// folder: for messages.
  void split(TensorMap& tensors, const ModelConfig& config, const TensorNames& names, const std::string& folder) {
    const ExpertTable& table = names.experts();
    const std::int64_t hidden = config.hidden, ffn = config.mixture.ffn;
    for (int layer = 0; layer < config.layers; ++layer) {
      if (!names.has_experts(layer)) continue;
      const auto take = [&](std::string_view whole, std::vector<std::string_view> parts, std::int64_t rows,
                            std::int64_t columns) {
        const std::string name = names.in_layer(layer, whole);
        const auto found = whole.empty() ? tensors.end() : tensors.find(name);
        if (found == tensors.end() || found->second->shape.size() != (columns == 0 ? 2 : 3)) return;
        const Tensor& all = *found->second;
        std::vector<std::int64_t> shape{config.mixture.experts, rows};
        if (columns != 0) shape.push_back(columns);
        if (all.shape != shape) {
          throw Error("checkpoint.wrong-shape",
                      text("'", folder, "': tensor '", name, "' is ", shape_text(all.shape), ", the config makes it ",
                           shape_text(shape)),
                      "Check that the config belongs to these weights");
        }
        tensors.erase(found);
        add_parts(tensors, all, parts, [&](std::string_view part, int expert) {
          return names.in_layer(layer, text(of_expert(part, expert), columns == 0 ? ".bias" : ".weight"));
        });
      };
      if (table.all_up[1].empty()) {
        take(table.all_up[0], {table.up[0], table.up[1]}, 2 * ffn, hidden);
      } else {
        take(table.all_up[0], {table.up[0]}, ffn, hidden);
        take(table.all_up[1], {table.up[1]}, ffn, hidden);
      }
      take(table.all_down, {table.down}, hidden, ffn);
      take(table.all_up_bias[0], {table.up[0]}, ffn, 0);
      take(table.all_up_bias[1], {table.up[1]}, ffn, 0);
      take(table.all_down_bias, {table.down}, hidden, 0);
    }
  }

 private:
  /// Each part has an equal number of an expert's rows.
  template <class Name>
  void add_parts(TensorMap& tensors, const Tensor& all, const std::vector<std::string_view>& parts, Name name_of) {
    const auto count = static_cast<std::size_t>(all.shape[0]) * parts.size();
    const std::size_t bytes = all.size_bytes / count;
    for (std::size_t i = 0; i < count; ++i) {
      Tensor part = all;
      part.name = name_of(parts[i % parts.size()], static_cast<int>(i / parts.size()));
      part.shape.erase(part.shape.begin());
      part.shape[0] /= static_cast<std::int64_t>(parts.size());
      part.bytes += i * bytes;
      part.size_bytes = bytes;
      const Tensor& kept = parts_.emplace_back(std::move(part));
      tensors.insert_or_assign(kept.name, &kept);
    }
  }

  std::deque<Tensor> parts_;  // a map refers to them
};

}}}
