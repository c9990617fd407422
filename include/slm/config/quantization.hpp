// QuantizationSettings: what a checkpoint says of its four-bit layers. Its tensors are checked against it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slm { inline namespace v0_1 {

/// How some of the layers are quantized. AutoAWQ states one rule for all of them, compressed-tensors one per config
/// group, Quark one with exceptions.
struct Int4Rule {
  std::string name;               // the field that states it, for messages: "config_groups.group_0"
  std::string layers;             // which: a name with wildcards * and ?; empty: every one
  int group = 0;                  // input features that share a scale; -1: all of them; 0: not stated
  std::optional<bool> symmetric;  // every zero point is 8: a checkpoint may then leave them out
  bool twos_complement = false;   // codes are -8..7 instead of 0..15
  std::string fault;              // why layers of this rule cannot be read; empty when they can
};

struct QuantizationSettings {
  enum class Method { none, awq, compressed_tensors, quark };
  enum class Version { unstated, gemm, gemv, gemv_fast };  // AutoAWQ's layouts

  Method method = Method::none;  // none: nothing stated, the tensors decide
  Version version = Version::unstated;
  bool reordered = false;       // Quark's pack_method: AutoAWQ's nibble order instead of sequence
  std::vector<Int4Rule> rules;  // the first one that fits a layer counts; at least one unless method is none
  std::string file;             // where this was found
};

}}
