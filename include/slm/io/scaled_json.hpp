// Reads the quantization settings of weights that are dequantized at load: GPTQ, FP8, and 8-bit compressed-tensors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "slm/io/quantization_fields.hpp"
#include "slm/io/stated_quantization.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// GPTQModel's "dynamic": "-:pattern" excludes layers; other patterns change their settings and are refused.
inline void refuse_changes_of_layers(const JsonFields& fields) {
  if (!fields.has("dynamic")) return;
  fields.object("dynamic");
  for (const auto& [pattern, changes] : fields.at("dynamic").items()) {
    if (pattern.starts_with("-:")) continue;
    throw foreign_setting(fields.file(), text("other settings for the layers ", quote(pattern), " (dynamic)"));
  }
}

/// Two extents of a block of weights, as a list. Zeros if absent.
inline std::array<std::int64_t, 2> read_block(const JsonFields& fields, const char* name) {
  if (!fields.has(name)) return {};
  const Json& list = fields.at(name);
  const auto is_extent = [](const Json& value) { return is_index(value, 1 << 20) && value != 0; };
  if (!list.is_array() || list.size() != 2 || !is_extent(list[0]) || !is_extent(list[1])) {
    throw fields.bad(name, "two positive numbers", list);
  }
  return {list[0].get<std::int64_t>(), list[1].get<std::int64_t>()};
}

inline StatedQuantization read_gptq(const JsonFields& fields) {
  StatedQuantization settings;
  settings.form = StatedQuantization::Form::gptq;
  settings.bits = fields.integer("bits", 1, 64, 4);
  if (settings.bits != 4 && settings.bits != 8) {
    throw foreign_setting(fields.file(), text("GPTQ with ", settings.bits, " bits, expected 4 or 8"));
  }
  const std::string version =
      lower_case(fields.string("checkpoint_format", fields.boolean("is_marlin_format", false) ? "marlin" : "gptq"));
  if (version != "gptq" && version != "gptq_v2") {
    throw foreign_setting(fields.file(), text("GPTQ weights packed as ", quote(version), ", expected gptq or gptq_v2"));
  }
  settings.zeros_less_one = version == "gptq";
  if (const auto words = lower_case(fields.string("pack_dtype", "int32")); words != "int32") {
    throw foreign_setting(fields.file(), text("GPTQ weights in words of type ", quote(words), ", expected int32"));
  }
  refuse_changes_of_layers(fields);
  Int4Rule rule{.name = "group_size", .layers = {}, .group = 0, .symmetric = {}, .twos_complement = false, .fault = {}};
  rule.group = read_group_size(fields, "group_size");
  settings.rules.push_back(std::move(rule));
  return settings;
}

inline StatedQuantization read_fp8(const JsonFields& fields) {
  StatedQuantization settings;
  settings.form = StatedQuantization::Form::fp8;
  const std::string format = lower_case(fields.string("fmt", "e4m3"));
  if (format.find("e4m3") == std::string::npos) {
    throw foreign_setting(fields.file(), text("FP8 weights of type ", quote(format), ", expected e4m3"));
  }
  settings.quantized_activations = true;
  settings.block = read_block(fields, "weight_block_size");
  return settings;
}

/// None if the group does not have eight bits. Throws Error for eight bits in an unsupported form.
inline std::optional<EightBitRule> read_eight_bit_group(const JsonFields& group, const std::string& name,
                                                        const std::string& format) {
  const JsonFields weights = group.object("weights");
  if (weights.integer("num_bits", 1, 64) != 8) return std::nullopt;
  EightBitRule rule;
  rule.name = text("config_groups.", excerpt(name));
  const auto refuse = [&](const std::string& what) {
    return foreign_setting(group.file(), text(rule.name, " has ", what));
  };
  const std::string type = weights.string("type", "int");
  if (type != "int" && type != "float") throw refuse(text("weights of type ", quote(type), ", expected int or float"));
  rule.floating = type == "float";
  const bool known = rule.floating
                         ? format == "float-quantized" || format == "naive-quantized"
                         : format == "pack-quantized" || format == "int-quantized" || format == "naive-quantized";
  if (!known) throw refuse(text("8-bit weights stored as ", quote(format)));
  if (group.has("output_activations")) throw refuse("quantized output_activations");
  if (weights.has("actorder") && weights.at("actorder") != false && weights.at("actorder") != "weight" &&
      weights.at("actorder") != "static") {
    throw refuse("activation order (actorder), expected none or 'weight'");
  }
  const std::string strategy = weights.string("strategy", weights.has("group_size") ? "group" : "channel");
  if (strategy == "group") {
    rule.group = read_group_size(weights, "group_size");
  } else if (strategy == "block") {
    rule.block = read_block(weights, "block_structure");
  } else if (strategy == "channel") {
    rule.group = -1;
  } else if (strategy != "tensor") {
    throw refuse(text("the strategy ", quote(strategy), ", expected tensor, channel, group or block"));
  }
  return rule;
}

}}}
