#include "api/llama_request.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "api/constraint_fields.hpp"
#include "api/default_fields.hpp"
#include "api/infill_prompt.hpp"
#include "api/logit_edits.hpp"

namespace serve {

namespace {

constexpr std::size_t most_fields = 64;
constexpr float never = -std::numeric_limits<float>::infinity();

/// The tokens that an entry of `logit_bias` names: an id, also as text, or the tokens of a text.
std::vector<slm::Token> biased_tokens(const slm::Json& named, const ServedModel& model) {
  if (!named.is_string()) return read_ids("logit_bias", slm::Json::array({named}), model);
  const std::string& text = named.get_ref<const std::string&>();
  int id = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, id);
  if (fault == std::errc{} && stop == end) return read_ids("logit_bias", slm::Json::array({id}), model);
  return model.tokenizer.encode(text, false);
}

/// llama.cpp's forms of `logit_bias`, removed from the body.
std::vector<std::pair<slm::Token, float>> take_logit_bias(slm::Json& body, const ServedModel& model) {
  const auto field = body.find("logit_bias");
  if (field == body.end()) return {};
  std::vector<std::pair<slm::Json, slm::Json>> entries;
  if (field->is_object()) {
    for (const auto& [name, bias] : field->items()) entries.emplace_back(name, bias);
  } else if (field->is_array()) {
    for (const slm::Json& pair : *field) {
      if (!pair.is_array() || pair.size() != 2) throw Fields::bad("logit_bias", pair, "pairs of a token and a bias");
      entries.emplace_back(pair[0], pair[1]);
    }
  } else {
    throw Fields::bad("logit_bias", *field, "an object or a list of pairs");
  }
  std::vector<std::pair<slm::Token, float>> biases;
  for (const auto& [named, bias] : entries) {
    const bool excluded = bias == false;
    if (!excluded && !(bias.is_number() && std::abs(bias.get<double>()) <= 100)) {
      throw Fields::bad("logit_bias", bias, "a number of -100 to 100, or false");
    }
    const float value = excluded ? never : bias.get<float>();
    for (const slm::Token token : biased_tokens(named, model)) biases.emplace_back(token, value);
    if (biases.size() > most_biased) {
      throw bad_field("logit_bias", slm::text("names more than ", most_biased, " tokens"));
    }
  }
  body.erase(field);
  return biases;
}

std::vector<std::string> read_response_fields(const Fields& fields) {
  std::vector<std::string> paths;
  const slm::Json* const list = fields.find("response_fields");
  if (list == nullptr) return paths;
  if (list->size() > most_fields) {
    throw bad_field("response_fields", slm::text("has ", list->size(), " paths, expected at most ", most_fields));
  }
  for (const slm::Json& path : *list) {
    if (!path.is_string()) throw Fields::bad("response_fields", path, "paths, such as `generation_settings/seed`");
    paths.push_back(path.get<std::string>());
  }
  return paths;
}

/// All fields except the prompt.
LlamaRequest read(slm::Json& body, FieldRoute route, const ServedModel& model, const ReadingOptions& options,
                  std::string_view source) {
  LlamaRequest request;
  add_defaults(body, route, options.defaults);
  std::vector<std::string> ignored = check_fields(body, route, options.strict_fields);
  slm::Sampling base{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};  // llama.cpp's defaults
  request.biases = take_logit_bias(body, model);
  body.erase("stream_options");
  const Fields fields(body, source);
  request.text = read_common(fields, model, options, base);
  request.text.ignored = std::move(ignored);
  request.text.token_deltas = request.text.stream;
  slm::Sampling& sampling = request.text.sampling;
  if (sampling.ignore_end_tokens) {  // llama.cpp never draws them
    for (const slm::Token end : model.info.end_tokens) request.biases.emplace_back(end, never);
  }
  if (!request.biases.empty()) {
    sampling.adjust_logits = [biases = request.biases](std::span<const slm::Token>, std::span<float> logits) {
      for (const auto& [token, bias] : biases) logits[static_cast<std::size_t>(token)] += bias;
    };
  }
  sampling.repetition_penalty = static_cast<float>(fields.number("repeat_penalty", sampling.repetition_penalty));
  for (const char* name : {"max_tokens", "n_predict"}) read_most(fields, name, request.text.max_tokens);
  if (const auto count = fields.integer("n_probs")) request.text.logprobs = static_cast<int>(*count);
  request.text.sampled_logprobs = fields.boolean("post_sampling_probs", false);
  request.text.constraint = read_constraint(fields, model);
  request.return_tokens = fields.boolean("return_tokens", false);
  request.response_fields = read_response_fields(fields);
  request.grammar = fields.string("grammar", "");
  return request;
}

}  // namespace

LlamaRequest read_llama_completion(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                                   std::string_view source) {
  LlamaRequest request = read(body, on_completion, model, options, source);
  request.text.prompts = read_prompts("prompt", Fields(body, source), model);
  check_size(request.text, model, options);
  return request;
}

LlamaRequest read_infill(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                         std::string_view source) {
  LlamaRequest request = read(body, on_infill, model, options, source);
  request.text.prompts = {infill_prompt(Fields(body, source), model)};
  check_size(request.text, model, options);
  return request;
}

LlamaRequest llama_request_without_fields(const ServedModel& model, const ReadingOptions& options) {
  slm::Json body = slm::Json::object();
  return read(body, on_completion, model, options, {});
}

OrderedJson generation_settings(const LlamaRequest& request, std::size_t choice, const ServedModel& model) {
  const TextRequest& text = request.text;
  const slm::Sampling sampling = text.prompts.empty() ? text.sampling : text.choice(choice, model).sampling;
  const int most = text.max_tokens ? sampling.max_new_tokens : -1;
  OrderedJson biases = OrderedJson::array();
  for (const auto& [token, bias] : request.biases) {
    biases.push_back({{"token", token}, {"bias", bias == never ? OrderedJson() : OrderedJson(bias)}});
  }
  return {{"n_predict", most},
          {"max_tokens", most},
          {"seed", sampling.seed},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repetition_penalty},
          {"repeat_last_n", -1},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"dynatemp_range", 0.0},
          {"dynatemp_exponent", 1.0},
          {"typical_p", 1.0},
          {"top_n_sigma", -1.0},
          {"xtc_probability", 0.0},
          {"xtc_threshold", 0.1},
          {"dry_multiplier", 0.0},
          {"mirostat", 0},
          {"adaptive_target", -1.0},
          {"adaptive_decay", 0.9},
          {"stop", text.stops},
          {"ignore_eos", sampling.ignore_end_tokens},
          {"logit_bias", std::move(biases)},
          {"stream", text.stream},
          {"n_probs", text.logprobs.value_or(0)},
          {"min_keep", 1},
          {"n_keep", 0},
          {"grammar", request.grammar},
          {"samplers", {"penalties", "temperature", "top_k", "top_p", "min_p"}},
          {"timings_per_token", text.timings_per_token},
          {"post_sampling_probs", text.sampled_logprobs},
          {"lora", OrderedJson::array()}};
}

}  // namespace serve
