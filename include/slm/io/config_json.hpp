// Reads config.json and generation_config.json of a Hugging Face folder -> ModelConfig and ModelSettings.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/end_tokens.hpp"
#include "slm/io/families/cohere.hpp"
#include "slm/io/families/deepseek.hpp"
#include "slm/io/families/gemma.hpp"
#include "slm/io/families/gemma3n.hpp"
#include "slm/io/families/gemma4.hpp"
#include "slm/io/families/glm.hpp"
#include "slm/io/families/gpt2.hpp"
#include "slm/io/families/gpt_neox.hpp"
#include "slm/io/families/gpt_oss.hpp"
#include "slm/io/families/granite.hpp"
#include "slm/io/families/internlm.hpp"
#include "slm/io/families/lfm2.hpp"
#include "slm/io/families/llama.hpp"
#include "slm/io/families/llama_relatives.hpp"
#include "slm/io/families/mamba2.hpp"
#include "slm/io/families/mistral.hpp"
#include "slm/io/families/mixtures.hpp"
#include "slm/io/families/mosaic_gpt.hpp"
#include "slm/io/families/mpt.hpp"
#include "slm/io/families/nemotron.hpp"
#include "slm/io/families/olmo.hpp"
#include "slm/io/families/olmo2.hpp"
#include "slm/io/families/opt.hpp"
#include "slm/io/families/phi.hpp"
#include "slm/io/families/phi3.hpp"
#include "slm/io/families/qwen.hpp"
#include "slm/io/families/qwen3_5.hpp"
#include "slm/io/families/qwen_moe.hpp"
#include "slm/io/families/smollm3.hpp"
#include "slm/io/families/stablelm.hpp"
#include "slm/io/families/starcoder2.hpp"
#include "slm/io/json.hpp"
#include "slm/io/tokenizer_ends.hpp"

namespace slm { inline namespace v0_1 {

/// All families. A new one needs a file in io/families/ and an entry here (docs/add-a-model.md).
inline constexpr const Family* known_families[] = {&families::llama,        &families::mistral,
                                                   &families::ministral,    &families::ministral3,
                                                   &families::olmo,         &families::olmo2,
                                                   &families::olmo3,        &families::phi,
                                                   &families::phi3,         &families::qwen2,
                                                   &families::qwen3,        &families::gpt2,
                                                   &families::opt,          &families::mpt,
                                                   &families::mosaic_gpt,   &families::granite,
                                                   &families::minicpm,      &families::smollm3,
                                                   &families::starcoder2,   &families::stablelm,
                                                   &families::ernie4_5,     &families::helium,
                                                   &families::seed_oss,     &families::hunyuan,
                                                   &families::bitnet,       &families::internlm2,
                                                   &families::internlm3,    &families::arcee,
                                                   &families::nemotron,     &families::apertus,
                                                   &families::gemma,        &families::gemma2,
                                                   &families::gemma3,       &families::gemma3n,
                                                   &families::gemma4,       &families::exaone,
                                                   &families::exaone4,      &families::glm,
                                                   &families::glm4,         &families::cohere,
                                                   &families::cohere2,      &families::gpt_neox,
                                                   &families::falcon,       &families::qwen3_moe,
                                                   &families::qwen2_moe,    &families::mixtral,
                                                   &families::phimoe,       &families::olmoe,
                                                   &families::granitemoe,   &families::granitemoeshared,
                                                   &families::ernie4_5_moe, &families::deepseek_v2,
                                                   &families::deepseek_v3,  &families::glm4_moe_lite,
                                                   &families::lfm2,         &families::lfm2_moe,
                                                   &families::qwen3_5,      &families::qwen3_5_moe,
                                                   &families::qwen3_next,   &families::granite_hybrid,
                                                   &families::falcon_h1,    &families::nemotron_h,
                                                   &families::bamba,        &families::gpt_oss};

namespace detail {

inline bool same_word(std::string_view a, std::string_view b) {  // MPTForCausalLM, MptForCausalLM
  const auto lower = [](char letter) { return letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

/// Determines the family by model_type, or by architectures if absent. If both are stated they must agree.
inline const Family& family_of(const JsonFields& fields) {
  const Family* by_type = nullptr;
  const Family* by_architecture = nullptr;
  const std::string type = fields.string("model_type", "");
  std::string architecture;
  if (fields.has("architectures")) {
    const Json& list = fields.at("architectures");
    if (!list.is_array() || list.empty() || !list.front().is_string()) {
      throw fields.bad("architectures", "a list of names", list);
    }
    architecture = list.front().get<std::string>();
  }
  for (const Family* family : known_families) {
    if (family->model_type == type) by_type = family;
    if (same_word(family->architecture, architecture)) by_architecture = family;
  }
  if (by_type && by_architecture && by_type != by_architecture) {
    throw families::contradictory(fields.file(),
                                  text("model_type ", quote(type), " and architecture ", quote(architecture)));
  }
  if (by_type) return *by_type;
  if (type.empty() && by_architecture) return *by_architecture;
  if (type.empty() && architecture.empty()) return families::llama;
  const char* code = fields.has("auto_map") ? ", whose code is part of the checkpoint" : "";
  throw families::unsupported(fields.file(), type.empty() ? text("the architecture ", quote(architecture), code)
                                                          : text("model_type ", quote(type), code));
}

/// Whether text_config describes the text model, in the multimodal models whose text part is a family of slm.
inline bool wraps_text(const JsonFields& fields) {
  const std::string type = fields.string("model_type", "");
  constexpr std::string_view wrappers[] = {"gemma3", "gemma3n", "gemma4", "mistral3", "qwen3_5", "qwen3_5_moe"};
  return std::find(std::begin(wrappers), std::end(wrappers), type) != std::end(wrappers) && fields.has("text_config");
}

/// Checks that synonymous fields have equal values.
inline void check_synonyms(const JsonFields& fields) {
  constexpr const char* synonyms[][3] = {{"hidden_size", "n_embd", "d_model"},
                                         {"num_hidden_layers", "n_layer", "n_layers"},
                                         {"num_attention_heads", "n_head", "n_heads"}};
  for (const auto& names : synonyms) {
    const char* first = nullptr;
    for (const char* name : names) {
      if (!fields.has(name)) continue;
      if (first && fields.at(first) != fields.at(name)) {
        throw families::contradictory(fields.file(), text(first, " is ", quote_json(fields.at(first)), " and ", name,
                                                          " is ", quote_json(fields.at(name))));
      }
      first = name;
    }
  }
}

/// Replaces the end tokens by those of a file. An id outside the vocabulary, such as -1 for none, is dropped.
inline void read_end_tokens(const JsonFields& fields, const char* name, ModelDescription& model) {
  if (!fields.has("eos_token_id")) return;
  const int vocab = model.config.vocab;
  std::vector<Token> tokens;
  const Json& field = fields.at("eos_token_id");
  std::size_t dropped = 0;
  std::string first;
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) throw fields.bad("eos_token_id", "a token id or a list of them", id);
    if (is_index(id, static_cast<std::uint64_t>(vocab))) return tokens.push_back(id.get<Token>());
    if (dropped++ == 0) first = quote_json(id);
  };
  if (field.is_array()) {
    for (const Json& id : field) add(id);
  } else {
    add(field);
  }
  if (dropped > 0) {
    model.notes.push_back(text("the end token ", first, " of '", fields.file(), "' is outside the vocabulary 0..",
                               vocab - 1, dropped > 1 ? text(", and so are ", dropped - 1, " more") : "", ": dropped"));
  }
  if (tokens.empty()) return;
  model.settings.end_tokens.clear();
  model.end_sources.clear();
  for (const Token token : tokens) add_end_token(model, token, name);
}

/// Reads the sampling defaults of generation_config.json. Invalid values are dropped, since the model can run without
/// them.
inline SuggestedSampling read_sampling(const JsonFields& fields, std::vector<std::string>& notes) {
  const auto take = [&](auto& setting, const char* name, double smallest, double largest) {
    if (!fields.has(name)) return;
    const Json& field = fields.at(name);
    const double value = field.is_number() ? field.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (value >= smallest && value <= largest) {
      setting = static_cast<typename std::remove_reference_t<decltype(setting)>::value_type>(value);
    } else {
      notes.push_back(text("'", fields.file(), "': ", name, " is ", quote_json(field), ", expected a number of ",
                           smallest, "..", largest, ": dropped"));
    }
  };
  SuggestedSampling sampling;
  take(sampling.temperature, "temperature", 0, 1e6);
  if (fields.has("do_sample") && fields.at("do_sample") == false) sampling.temperature = 0.0f;
  take(sampling.top_k, "top_k", 0, 1 << 30);
  take(sampling.top_p, "top_p", 1e-9, 1);
  take(sampling.min_p, "min_p", 0, 1);
  take(sampling.repetition_penalty, "repetition_penalty", 1e-3, 1e3);
  return sampling;
}

}  // namespace detail

/// Reads the fields that determine a model; other fields are ignored.
inline ModelDescription read_config_json(const Json& json, const std::string& file) {
  const JsonFields whole(json, file);
  ModelDescription model;
  const bool wrapped = detail::wraps_text(whole);
  const JsonFields fields = wrapped ? whole.object("text_config") : whole;
  model.family = &detail::family_of(fields);
  detail::check_synonyms(fields);
  model.family->read(fields, model);
  if (wrapped && whole.has("tie_word_embeddings")) families::read_tied(whole, model);  // as in transformers
  if (const auto what = fault_of(model.config); !what.empty()) {
    throw Error("config.unsound", text("'", file, "': ", what), "Take the file from the model's original repository");
  }
  if (const std::string what = fault_of(model.config, model.settings); !what.empty())
    throw families::contradictory(file, what);
  detail::read_end_tokens(fields.has("eos_token_id") ? fields : whole, "config.json", model);
  return model;
}

/// Reads a model folder's config.json. generation_config.json, if present, overrides the end tokens and supplies
/// sampling defaults. The tokenizer's end tokens are added. Tokenizer reports errors in the tokenizer files.
inline ModelDescription read_model_description(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const OwnedJson json = read_json_object(path);
  ModelDescription model = read_config_json(json, path.string());
  if (const auto generation = folder / "generation_config.json"; file_exists(generation)) {
    const OwnedJson generation_json = read_json_object(generation);
    const JsonFields fields(generation_json, generation.string());
    detail::read_end_tokens(fields, "generation_config.json", model);
    model.settings.sampling = detail::read_sampling(fields, model.notes);
  }
  try {
    add_tokenizer_ends(model, read_tokenizer_ends(folder));
  } catch (const Error& error) {
    model.notes.push_back(text("the tokenizer's end tokens are unknown: ", error.what()));
  }
  return model;
}

}}
