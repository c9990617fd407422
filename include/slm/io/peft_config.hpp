// PeftConfig: the contents of adapter_config.json.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/io/name_pattern.hpp"
#include "slm/io/path_name.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class PeftConfig {
 public:
  static constexpr int most_rank = 512;

  explicit PeftConfig(const std::filesystem::path& folder)
      : PeftConfig(OwnedJson(read_json_object(folder / "adapter_config.json")), name_of_path(folder),
                   (folder / "adapter_config.json").string()) {}

  /// name: of the adapter. file: of the config, for messages.
  PeftConfig(const Json& json, std::string name, std::string file) : name_(std::move(name)), file_(std::move(file)) {
    const JsonFields fields(json, file_, advice);
    if (fields.string("peft_type", "") != "LORA") {
      throw unsupported(fields.has("peft_type") ? quote_json(fields.at("peft_type")) : "no stated method",
                        "adapter_config.json: peft_type");
    }
    for (const auto& [field, value] : json.items()) check_field(field, value);
    if (fields.string("bias", "none") != "none") throw unsupported("trained biases", "adapter_config.json: bias");
    check_beginning(fields);
    rank_ = fields.integer("r", 1, most_rank, 8);
    alpha_ = fields.number("lora_alpha", 0, most_alpha, 8);
    by_root_ = fields.boolean("use_rslora", false);
    read_patterns(fields, "rank_pattern", 1, most_rank, ranks_);
    read_patterns(fields, "alpha_pattern", 0, most_alpha, alphas_);
  }

  /// For messages.
  const std::string& name() const { return name_; }

  int rank(std::string_view module) const { return static_cast<int>(of(ranks_, module, rank_)); }

  float scale(std::string_view module) const {
    const double rank = this->rank(module);
    return static_cast<float>(of(alphas_, module, alpha_) / (by_root_ ? std::sqrt(rank) : rank));
  }

  Error unsupported(const std::string& what, const std::string& where) const {
    return Error("adapter.unsupported",
                 text(quote(name_), " uses ", what, " (", where, "), which slm does not support"),
                 "Merge it into the base model, or train it without");
  }

 private:
  static constexpr const char* advice = "Save the adapter again with PEFT's save_pretrained()";
  static constexpr double most_alpha = 1e6;
  static constexpr std::int64_t most_work = 500'000'000;  // visited states, over all patterns and modules
  static constexpr std::size_t most_patterns =
      std::size_t{256} << 10;  // bytes of a field's keys; parsed, about a hundred times as large

  struct Pattern {
    NamePattern name;
    double value;
  };

  /// Fields that change the computation must be off, including unknown ones.
  void check_field(const std::string& field, const Json& value) const {
    constexpr std::pair<std::string_view, const char*> refused[] = {
        {"use_dora", "DoRA"},
        {"lora_bias", "trained biases"},
        {"use_qalora", "QA-LoRA"},
        {"use_bdlora", "block-diagonal LoRA"},
        {"modules_to_save", "modules trained as a whole"},
        {"trainable_token_indices", "trained tokens"},
        {"layer_replication", "repeated layers"},
        {"target_parameters", "parameters that are not modules"},
        {"alora_invocation_tokens", "aLoRA"},
        {"arrow_config", "Arrow"},
        {"kasa_config", "KaSA"},
        {"monteclora_config", "MonteCLoRA"},
        {"velora_config", "VeLoRA"}};
    constexpr std::string_view known[] = {
        "peft_type",       "r",          "peft_version",        "use_rslora",          "rank_pattern",
        "alpha_pattern",   "bias",       "init_lora_weights",   "fan_in_fan_out",      "target_modules",
        "exclude_modules", "task_type",  "layers_to_transform", "layers_pattern",      "lora_dropout",
        "inference_mode",  "revision",   "runtime_config",      "megatron_config",     "megatron_core",
        "auto_mapping",    "eva_config", "corda_config",        "lora_ga_config",      "loftq_config",
        "merge_weights",   "lora_alpha", "qalora_group_size",   "ensure_weight_tying", "base_model_name_or_path"};
    const bool off =
        value.is_null() || value == false || is_text(value, "") || (value.is_structured() && value.empty());
    if (off || std::find(std::begin(known), std::end(known), field) != std::end(known)) return;
    const auto found =
        std::find_if(std::begin(refused), std::end(refused), [&](const auto& one) { return one.first == field; });
    throw unsupported(found == std::end(refused) ? "an unknown option" : found->second,
                      text("adapter_config.json: ", excerpt(field)));
  }

  /// An initialisation is valid if it keeps the base weights, so that base + scale * B * A is the trained model. The
  /// comments refer to LoraLayer.update_layer() of PEFT 0.20. Unknown initialisations may do anything and are refused.
  /// When PEFT converts the adapter of a changed base to one of the original base, it writes true.
  void check_beginning(const JsonFields& fields) const {
    constexpr std::string_view sound[] = {
        "gaussian",    // reset_lora_parameters(): A is random, B is zero
        "eva",         // B is zero, A is computed from inputs; changed ranks and factors are in the patterns
        "orthogonal",  // orthogonal_init(): A and B are random with B * A = 0
        "mica"};       // mica_init(): B is computed from the base, A is zero
    constexpr std::string_view changing[] = {
        "pissa",    // pissa_init(): subtracts scale * B * A from the base; pissa_niter_N likewise
        "corda",    // corda_init(): the same; PEFT compares a prefix of the name, as for pissa
        "olora",    // olora_init(): the same
        "lora_ga",  // lora_ga_init(): the same if there are gradients, that is, at the start of training
        "loftq"};   // loftq_init(): quantizes the base
    // true is the default: A is random, B is zero. With false and null both are random, and nothing is subtracted.
    if (!fields.has("init_lora_weights") || fields.at("init_lora_weights").is_boolean()) return;
    const std::string way = fields.string("init_lora_weights", "");
    std::string name = way;  // PEFT accepts capitals in some of them
    for (char& byte : name) byte = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
    if (std::find(std::begin(sound), std::end(sound), name) != std::end(sound)) return;
    const bool changes = std::any_of(std::begin(changing), std::end(changing),
                                     [&](std::string_view one) { return name.starts_with(one); });
    throw unsupported(
        text("the initialisation ", quote(way), changes ? ", which changes the base model" : ", which is unknown"),
        "adapter_config.json: init_lora_weights");
  }

  void read_patterns(const JsonFields& fields, const char* field, double smallest, double largest,
                     std::vector<Pattern>& patterns) const {
    if (!fields.has(field)) return;
    if (!fields.at(field).is_object()) throw fields.bad(field, "an object of patterns and numbers", fields.at(field));
    const JsonFields values = fields.object(field);
    std::size_t length = 0;
    for (const auto& [key, value] : fields.at(field).items()) {
      length += key.size();
      if (length > most_patterns) {
        throw Error("adapter.pattern",
                    text("'", file_, "': the keys of ", field, " are longer than ", most_patterns, " bytes in total"),
                    "Use fewer and shorter expressions");
      }
      auto pattern = NamePattern::parse(key);
      if (!pattern) {
        throw Error(
            "adapter.pattern",
            text("'", file_, "': the key ", quote(key), " of ", field, ": expected an expression that slm supports"),
            "Name the modules, or use literals, sets, groups, '|', '*', '+' and '?'");
      }
      patterns.push_back({*std::move(pattern), double{values.number(key.c_str(), smallest, largest)}});
    }
  }

  /// The value of the first pattern that matches the module. PEFT writes them in the order in which JSON is read here.
  double of(const std::vector<Pattern>& patterns, std::string_view module, double otherwise) const {
    for (const Pattern& pattern : patterns) {
      if (pattern.name.matches(module, budget_)) return pattern.value;
    }
    if (budget_ >= 0) return otherwise;
    throw Error("adapter.pattern", text("'", file_, "': rank_pattern and alpha_pattern take too long to match"),
                "Use fewer and shorter expressions");
  }

  std::string name_, file_;
  int rank_ = 0;
  double alpha_ = 0;
  bool by_root_ = false;
  std::vector<Pattern> ranks_, alphas_;
  mutable std::int64_t budget_ = most_work;
};

}}}
