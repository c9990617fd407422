// Reads the quantization settings in config.json or in older side files.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "slm/config/quantization.hpp"
#include "slm/io/json.hpp"
#include "slm/io/quantization_fields.hpp"
#include "slm/io/scaled_json.hpp"
#include "slm/io/stated_quantization.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

inline QuantizationSettings::Version read_awq_version(const JsonFields& fields) {
  using Version = QuantizationSettings::Version;
  std::string word = fields.string("version", fields.string("format", fields.string("checkpoint_format", "")));
  word = lower_case(word);
  // llm-awq's converter writes "gemv" for both of its layouts.
  if (lower_case(fields.string("backend", "")) == "llm-awq" || word == "llm-awq" || word.empty()) {
    return Version::unstated;
  }
  if (word == "gemm" || word == "exllama" || word == "exllamav2") return Version::gemm;
  if (word == "gemv") return Version::gemv;
  if (word == "gemv_fast") return Version::gemv_fast;
  throw Error("quant.unknown-version",
              text("'", fields.file(), "' names the AWQ version ", quote(word),
                   "; expected gemm, gemv, gemv_fast, llm-awq, exllama or exllamav2"),
              word == "marlin" ? "A marlin file is packed for one kernel: use the model's gemm repository"
                               : "Use the model's gemm repository");
}

inline QuantizationSettings read_awq(const JsonFields& fields) {
  const char* bits_name = fields.has("bits") ? "bits" : "w_bit";
  if (const int bits = fields.integer(bits_name, 1, 64, 4); bits != 4) {
    throw foreign_setting(fields.file(), text("AWQ with ", bits, " bits, expected 4"));
  }
  if (fields.boolean("desc_act", false)) {
    throw foreign_quantization(fields.file(), "activation order (desc_act), which is GPTQ, not AWQ");
  }
  refuse_changes_of_layers(fields);
  Int4Rule rule{.name = "group_size", .layers = {}, .group = 0, .symmetric = {}, .twos_complement = false, .fault = {}};
  rule.group = read_group_size(fields, fields.has("group_size") ? "group_size" : "q_group_size");
  rule.symmetric = !fields.boolean("zero_point", !fields.boolean("sym", false));
  QuantizationSettings settings;
  settings.method = QuantizationSettings::Method::awq;
  settings.version = read_awq_version(fields);
  settings.rules.push_back(std::move(rule));
  return settings;
}

/// One config group of compressed-tensors. Layers cannot be assigned to groups by patterns here, so an unsupported
/// group is refused.
inline Int4Rule read_config_group(const JsonFields& group, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return foreign_setting(group.file(), text("config_groups.", excerpt(name), " has ", what));
  };
  const JsonFields weights = group.object("weights");
  Int4Rule rule{.name = text("config_groups.", excerpt(name)),
                .layers = {},
                .group = 0,
                .symmetric = {},
                .twos_complement = false,
                .fault = {}};
  if (const int bits = weights.integer("num_bits", 1, 64); bits != 4)
    throw refuse(text(bits, " bits, expected 4 or 8"));
  if (const auto type = weights.string("type", "int"); type != "int")
    throw refuse(text("weights of type ", quote(type)));
  for (const char* quantized : {"input_activations", "output_activations"}) {
    if (group.has(quantized)) throw refuse(text("quantized ", quantized));
  }
  if (weights.has("actorder") && weights.at("actorder") != false && weights.at("actorder") != "weight" &&
      weights.at("actorder") != "static") {
    throw refuse("activation order (actorder), expected none or 'weight'");
  }
  const std::string strategy = weights.string("strategy", weights.has("group_size") ? "group" : "channel");
  if (strategy == "group") {
    rule.group = read_group_size(weights, "group_size");
  } else if (strategy == "channel") {
    rule.group = -1;
  } else {
    throw refuse(text("the strategy ", quote(strategy), ", expected group or channel"));
  }
  rule.symmetric = weights.boolean("symmetric", true);
  return rule;
}

inline StatedQuantization read_compressed_tensors(const JsonFields& fields) {
  StatedQuantization settings;
  settings.method = QuantizationSettings::Method::compressed_tensors;
  if (is_stated(fields, "transform_config")) {
    throw foreign_setting(fields.file(), "activation transforms (transform_config), which slm does not support");
  }
  if (is_stated(fields, "sparsity_config") && fields.object("sparsity_config").string("format", "dense") != "dense") {
    throw foreign_setting(fields.file(), "sparse weights (sparsity_config)");
  }
  const JsonFields groups = fields.object("config_groups");
  for (const auto& [name, group] : fields.at("config_groups").items()) {
    if (!group.is_object()) throw groups.bad(name.c_str(), "an object", group);
    const JsonFields group_fields(group, fields.file());
    const auto format = group_fields.string("format", fields.string("format", "pack-quantized"));
    if (const auto rule = read_eight_bit_group(group_fields, name, format)) {
      settings.eight_bits.push_back(*rule);
      settings.quantized_activations = settings.quantized_activations || group_fields.has("input_activations");
      continue;
    }
    if (format != "pack-quantized") {
      throw foreign_setting(fields.file(), text("config_groups.", excerpt(name), " is stored as ", quote(format),
                                                ", expected pack-quantized"));
    }
    settings.rules.push_back(read_config_group(group_fields, name));
  }
  if (settings.rules.empty() && settings.eight_bits.empty()) {
    throw fields.bad("config_groups", "at least one group", fields.at("config_groups"));
  }
  return settings;
}

/// Weight settings of one layer or of all, in Quark's format.
inline Int4Rule read_quark_rule(const JsonFields& layer, std::string name, std::string layers) {
  Int4Rule rule{.name = std::move(name),
                .layers = std::move(layers),
                .group = 0,
                .symmetric = {},
                .twos_complement = false,
                .fault = {}};
  if (!layer.has("weight")) return rule;  // not quantized
  if (layer.at("weight").is_array()) {
    rule.fault = "weights quantized in several stages";
    return rule;
  }
  const JsonFields weight = layer.object("weight");
  const std::string dtype = lower_case(weight.string("dtype", ""));
  const std::string scheme = weight.string("qscheme", "per_group");
  if (dtype != "uint4" && dtype != "int4") {
    rule.fault = text("weights of type ", quote(dtype), ", expected uint4 or int4");
  } else if (layer.has("input_tensors") || layer.has("output_tensors")) {
    rule.fault = "quantized activations";
  } else if (scheme != "per_group") {  // other schemes pack along the inputs
    rule.fault = text("the scheme ", quote(scheme), ", expected per_group");
  }
  if (rule.fault.empty()) rule.group = read_group_size(weight, "group_size");
  rule.symmetric = weight.boolean("symmetric", dtype == "int4");
  rule.twos_complement = dtype == "int4";
  return rule;
}

inline QuantizationSettings read_quark(const JsonFields& fields) {
  QuantizationSettings settings;
  settings.method = QuantizationSettings::Method::quark;
  if (fields.has("export")) {
    const JsonFields form = fields.object("export");
    const std::string packing = form.string("pack_method", "reorder");
    if (packing != "reorder" && packing != "order") {
      throw foreign_setting(fields.file(), text("pack_method ", quote(packing), ", expected reorder or order"));
    }
    settings.reordered = packing == "reorder";
  } else {
    settings.reordered = true;
  }
  if (is_stated(fields, "layer_type_quant_config")) {
    throw foreign_setting(fields.file(), "settings by type of layer (layer_type_quant_config)");
  }
  if (is_stated(fields, "algo_config") && fields.at("algo_config").is_array()) {
    for (const Json& algorithm : fields.at("algo_config")) {
      if (!algorithm.is_object()) continue;
      const std::string name = lower_case(JsonFields(algorithm, fields.file()).string("name", ""));
      if (name.find("rotation") != std::string::npos || name.find("quarot") != std::string::npos) {
        throw foreign_setting(fields.file(), text("rotations (", excerpt(name), "), which a model may have to repeat"));
      }
    }
  }
  if (fields.has("layer_quant_config")) {
    const JsonFields layers = fields.object("layer_quant_config");
    for (const auto& [pattern, layer] : fields.at("layer_quant_config").items()) {
      if (!layer.is_object()) throw layers.bad(pattern.c_str(), "an object", layer);
      if (pattern.find('[') != std::string::npos) {
        throw foreign_setting(fields.file(), text("the layer pattern ", quote(pattern)));
      }
      settings.rules.push_back(
          read_quark_rule(JsonFields(layer, fields.file()), text("layer_quant_config.", excerpt(pattern)), pattern));
    }
    // JSON objects are unordered: plain names precede patterns, longer patterns precede shorter ones, then alphabetical
    // order.
    std::sort(settings.rules.begin(), settings.rules.end(), [](const Int4Rule& a, const Int4Rule& b) {
      const auto is_pattern = [](const Int4Rule& rule) { return rule.layers.find_first_of("*?") != std::string::npos; };
      if (is_pattern(a) != is_pattern(b)) return is_pattern(b);
      return a.layers.size() != b.layers.size() ? a.layers.size() > b.layers.size() : a.layers < b.layers;
    });
  }
  settings.rules.push_back(read_quark_rule(fields.object("global_quant_config"), "global_quant_config", ""));
  return settings;
}

inline QuantizationSettings read_auto_round(const JsonFields& fields) {
  const std::string packing = fields.string("packing_format", "");
  if (packing != "auto_round:auto_awq" && packing != "auto_round:awq") {
    throw foreign_quantization(fields.file(),
                               text("AutoRound weights packed as ", quote(packing), ", expected auto_round:auto_awq"));
  }
  return read_awq(fields);
}

}  // namespace detail

/// Reads a quantization_config object. Throws Error for an unsupported scheme or setting.
inline StatedQuantization read_quantization_json(const Json& json, const std::string& file) {
  const JsonFields fields(json, file);
  const std::string method = detail::lower_case(fields.string("quant_method", ""));
  const auto settings = [&]() -> StatedQuantization {
    if (fields.has("producer") && fields.at("producer").is_object() &&
        fields.at("producer").value("name", Json()) == "modelopt") {
      throw detail::foreign_quantization(file, "ModelOpt weights (NVIDIA), whose pre_quant_scale AWQ layers lack");
    }
    if (method == "awq") return detail::read_awq(fields);
    if (method == "compressed-tensors") return detail::read_compressed_tensors(fields);
    if (method == "quark") return detail::read_quark(fields);
    if (method == "auto-round" || method == "intel/auto-round") return detail::read_auto_round(fields);
    if (method == "gptq") return detail::read_gptq(fields);
    if (method == "fp8" || method == "fbgemm_fp8") return detail::read_fp8(fields);
    if (method == "mxfp4") return {};  // only experts of gpt-oss, which the tensors show
    if (method == "modelopt") {
      throw detail::foreign_quantization(file, "ModelOpt weights (NVIDIA), whose pre_quant_scale AWQ layers lack");
    }
    if (!method.empty()) throw detail::foreign_quantization(file, text("weights quantized by ", quote(method)));
    if (fields.has("config_groups")) return detail::read_compressed_tensors(fields);
    if (fields.has("global_quant_config")) return detail::read_quark(fields);
    if (fields.has("packing_format")) return detail::read_auto_round(fields);
    if (fields.has("damp_percent") || fields.has("desc_act")) return detail::read_gptq(fields);
    if (fields.has("load_in_4bit") || fields.has("load_in_8bit")) {
      throw detail::foreign_quantization(file, "weights quantized by bitsandbytes");
    }
    for (const char* name : {"bits", "w_bit", "group_size", "q_group_size", "zero_point"}) {
      if (fields.has(name)) return detail::read_awq(fields);
    }
    return {};
  };
  StatedQuantization found = settings();
  found.file = file;
  return found;
}

/// The quantization that a model folder declares: in config.json, else in side files of older writers; not stated if
/// absent.
inline StatedQuantization read_quantization(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "config.json";
  const std::string file = config_path.string();
  const OwnedJson config = read_json_object(config_path);
  const auto block = [&](const Json& holder) -> const Json* {
    for (const char* name : {"quantization_config", "compression_config"}) {
      const auto found = holder.find(name);
      if (found != holder.end() && !found->is_null()) {
        if (!found->is_object()) throw JsonFields(holder, file).bad(name, "an object", *found);
        return &*found;
      }
    }
    return nullptr;
  };
  if (const auto mlx = config.find("quantization"); mlx != config.end() && mlx->is_object()) {
    throw detail::foreign_quantization(file, "weights quantized by MLX");
  }
  if (const Json* found = block(config)) return read_quantization_json(*found, file);
  if (const auto language = config.find("text_config"); language != config.end() && language->is_object()) {
    if (const Json* found = block(*language)) return read_quantization_json(*found, file);
  }
  for (const char* name : {"quantization_config.json", "quant_config.json", "quantize_config.json"}) {
    if (!file_exists(folder / name)) continue;
    const OwnedJson side = read_json_object(folder / name);
    return read_quantization_json(side, (folder / name).string());
  }
  if (const auto path = folder / "hf_quant_config.json"; file_exists(path)) {
    throw detail::foreign_quantization(path.string(),
                                       "ModelOpt weights (NVIDIA), whose pre_quant_scale AWQ layers lack");
  }
  return {};
}

}}
