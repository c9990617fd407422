// QuantizationSettings: the 4-bit quantization that a checkpoint declares. The reader checks tensors against it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// The quantization of a subset of layers. AutoAWQ states one rule for all layers, compressed-tensors one per config
/// group, Quark one rule with exceptions.
struct Int4Rule {
  std::string name;               // name of the field, for messages: "config_groups.group_0"
  std::string layers;             // layer name pattern with wildcards * and ?; empty: all
  int group = 0;                  // input features per scale; -1: all; 0: not stated
  std::optional<bool> symmetric;  // true: all zero points are 8, and a checkpoint may omit them
  bool twos_complement = false;   // codes are -8..7 instead of 0..15
  std::string fault;              // why layers of this rule are unsupported; empty if supported
};

struct QuantizationSettings {
  enum class Method { none, awq, compressed_tensors, quark };
  enum class Version { unstated, gemm, gemv, gemv_fast };  // AutoAWQ's layouts

  Method method = Method::none;  // none: not stated; the tensors decide
  Version version = Version::unstated;
  bool reordered = false;       // Quark's pack_method: AutoAWQ's nibble order instead of sequence
  std::vector<Int4Rule> rules;  // the first matching rule applies; not empty unless method is none
  std::string file;             // file of the declaration
};

}}
