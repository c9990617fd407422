// LayerShapes: shapes and parts of single layers that differ from those of the others.
#pragma once

#include <string_view>

#include "slm/core/mixer.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

struct LayerShapes {
  LayerSet wide_heads = {};      // layers whose heads have the sizes below instead of the model's
  int kv_heads = 0;              // 0: the model's
  int head_dim = 0;              // 0: there are no such layers
  LayerSet keys_as_values = {};  // layers without a matrix of values: they are the keys before norm and rotation
  LayerSet borrowing = {};       // layers that keep no keys and values: see kv_layer_of()
  LayerSet wide_mlps = {};       // layers whose MLPs have the width below instead of the model's
  int ffn = 0;                   // 0: there are no such layers
  int inputs = 0;                // width of a layer's own input, from a table of tokens and the embedding; 0: none
  int input_rows = 0;            // rows of that table; tokens beyond them have the first row; 0: the vocabulary
  bool value_norm = false;       // each head of the values is normalised, without weights
  bool scaled = false;           // each layer's output has a factor, which the weights state

  constexpr bool operator==(const LayerShapes&) const = default;
};

/// Returns the fault of the shapes in a model of this many layers and query heads, or an empty string.
constexpr std::string_view fault_of(const LayerShapes& shapes, int layers, int heads) {
  for (const LayerSet* set : {&shapes.wide_heads, &shapes.keys_as_values, &shapes.borrowing, &shapes.wide_mlps}) {
    if (!set->within(layers)) return "a set of layers has a layer that the model lacks";
  }
  if (shapes.wide_heads.empty() != (shapes.head_dim == 0)) return "wide_heads and its head_dim disagree";
  if (shapes.head_dim < 0 || shapes.head_dim > 1024 || shapes.head_dim % 2 != 0)
    return "the head_dim of wide_heads must be even and at most 1024";
  if (shapes.kv_heads < 0 || shapes.kv_heads > heads || (shapes.kv_heads != 0 && heads % shapes.kv_heads != 0))
    return "heads must be a multiple of the kv_heads of wide_heads";
  if (shapes.kv_heads != 0 && shapes.wide_heads.empty()) return "kv_heads of layers need wide_heads";
  if (shapes.wide_mlps.empty() != (shapes.ffn == 0)) return "wide_mlps and its ffn disagree";
  if (shapes.ffn < 0 || shapes.ffn > 1 << 22) return "the ffn of wide_mlps must be 1..4194304";
  if (shapes.inputs < 0 || shapes.inputs > 1 << 16) return "the width of a layer's input must be 0..65536";
  if (shapes.input_rows < 0 || shapes.input_rows > most_vocab || (shapes.input_rows != 0 && shapes.inputs == 0))
    return "the rows of the table of layers' inputs must be 0..1000000, and 0 without inputs";
  if (shapes.borrowing.has(0)) return "the first layer has no layer before it whose keys and values it could read";
  return {};
}

}}
