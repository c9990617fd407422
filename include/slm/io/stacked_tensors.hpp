// StackedTensors: the matrices of single experts and streams in tensors that hold those of all of them.
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

/// Replaces such tensors [experts, rows, columns], biases [experts, rows], and tensors [streams, rows, columns] in a
/// map by their parts, under the names of single matrices. Tensors in MXFP4 are NAME_blocks [experts, rows, columns /
/// 32, 16] and NAME_scales [experts, rows, columns / 32]. Parts refer to the bytes of the whole. Throws
/// checkpoint.wrong-shape.
class StackedTensors {
 public:
  /// folder: for messages.
  void split(TensorMap& tensors, const ModelConfig& config, const TensorNames& names, const std::string& folder) {
    split_experts(tensors, config, names, folder);
    for (const Role role : {Role::stream_in, Role::stream_out}) {
      const std::vector<TensorName> parts = names.weights(role);
      const std::string whole = names.all_streams(role);
      const auto found = parts.empty() || whole.empty() ? tensors.end() : tensors.find(whole);
      if (found == tensors.end()) continue;
      const Tensor& all = *found->second;
      const auto count = static_cast<std::int64_t>(parts.size());
      check(all, {count, parts[0].shape[0], parts[0].shape[1]}, whole, folder);
      tensors.erase(found);
      add_parts(tensors, all, 1, [&](std::size_t, std::size_t stream) { return parts[stream].name; });
    }
  }

 private:
  static void check(const Tensor& all, const std::vector<std::int64_t>& shape, std::string_view name,
                    const std::string& folder) {
    if (all.shape == shape) return;
    throw Error("checkpoint.wrong-shape",
                text("'", folder, "': tensor '", name, "' is ", shape_text(all.shape), ", the config makes it ",
                     shape_text(shape)),
                "Check that the config belongs to these weights");
  }

  void split_experts(TensorMap& tensors, const ModelConfig& config, const TensorNames& names,
                     const std::string& folder) {
    const ExpertTable& table = names.experts();
    const std::int64_t hidden = config.hidden, ffn = config.mixture.ffn;
    for (int layer = 0; layer < config.layers; ++layer) {
      if (!names.has_experts(layer)) continue;
      const auto take_shaped = [&](const std::string& whole, std::vector<std::string_view> parts,
                                   std::vector<std::int64_t> shape, std::string_view suffix) {
        const std::string name = names.in_layer(layer, whole);
        const auto found = whole.empty() ? tensors.end() : tensors.find(name);
        if (found == tensors.end() || found->second->shape.size() != shape.size() + 1) return;
        const Tensor& all = *found->second;
        shape.insert(shape.begin(), config.mixture.experts);
        check(all, shape, name, folder);
        tensors.erase(found);
        add_parts(tensors, all, parts.size(), [&](std::size_t part, std::size_t expert) {
          return names.in_layer(layer, text(of_expert(parts[part], static_cast<int>(expert)), suffix));
        });
      };
      const auto take = [&](std::string_view whole, std::vector<std::string_view> parts, std::int64_t rows,
                            std::int64_t columns) {
        const std::string name(whole);
        if (columns == 0) return take_shaped(name, parts, {rows}, ".bias");
        const bool turned = table.transposed;
        take_shaped(name, parts, {turned ? columns : rows, turned ? rows : columns}, ".weight");
        if (!turned || name.empty()) return;
        take_shaped(name + "_blocks", parts, {rows, columns / 32, 16}, ".weight_blocks");
        take_shaped(name + "_scales", parts, {rows, columns / 32}, ".weight_scales");
      };
      const bool one_up = table.up[1].empty();
      const std::int64_t rows_of_one = config.gated ? 2 * ffn : ffn;
      if (one_up) {
        take(table.all_up[0], {table.up[0]}, rows_of_one, hidden);
      } else if (table.all_up[1].empty()) {
        take(table.all_up[0], {table.up[0], table.up[1]}, 2 * ffn, hidden);
      } else {
        take(table.all_up[0], {table.up[0]}, ffn, hidden);
        take(table.all_up[1], {table.up[1]}, ffn, hidden);
      }
      take(table.all_down, {table.down}, hidden, ffn);
      take(table.all_up_bias[0], {table.up[0]}, one_up ? rows_of_one : ffn, 0);
      take(table.all_up_bias[1], {table.up[1]}, ffn, 0);
      take(table.all_down_bias, {table.down}, hidden, 0);
    }
  }

  /// Each of the `parts` of a matrix has an equal number of its rows.
  template <class Name>
  void add_parts(TensorMap& tensors, const Tensor& all, std::size_t parts, Name name_of) {
    const auto count = static_cast<std::size_t>(all.shape[0]) * parts;
    const std::size_t bytes = all.size_bytes / count;
    for (std::size_t i = 0; i < count; ++i) {
      Tensor part = all;
      part.name = name_of(i % parts, i / parts);
      part.shape.erase(part.shape.begin());
      part.shape[0] /= static_cast<std::int64_t>(parts);
      part.bytes += i * bytes;
      part.size_bytes = bytes;
      const Tensor& kept = parts_.emplace_back(std::move(part));
      tensors.insert_or_assign(kept.name, &kept);
    }
  }

  std::deque<Tensor> parts_;  // a map refers to them
};

}}}
