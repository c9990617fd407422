#include "api/text_request.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "api/constraint_fields.hpp"
#include "api/default_fields.hpp"
#include "api/logit_edits.hpp"
#include "slm/core/checksum.hpp"
#include "slm/text/utf8.hpp"

namespace serve {

namespace {

constexpr std::size_t most_stops = 32, longest_stop = 256, longest_salt = 256;

std::uint64_t random_seed() {
  static thread_local std::mt19937_64 source{std::random_device{}()};
  return source();
}

std::vector<std::string> read_stops(const Fields& fields) {
  const slm::Json* stop = fields.find("stop");
  if (stop == nullptr) return {};
  const slm::Json list = stop->is_array() ? *stop : slm::Json::array({*stop});
  if (list.size() > most_stops) {
    throw bad_field("stop", slm::text("has ", list.size(), " strings, expected at most ", most_stops));
  }
  std::vector<std::string> stops;
  for (const slm::Json& text : list) {
    if (!text.is_string()) throw Fields::bad("stop", text, "a string or a list of strings");
    std::string stop_string = text.get<std::string>();
    if (stop_string.empty()) continue;  // stops nothing
    if (const std::size_t length = slm::utf8::count(stop_string); length > longest_stop) {
      throw bad_field("stop", slm::text("has a string of ", length, " characters, expected at most ", longest_stop));
    }
    stops.push_back(std::move(stop_string));
  }
  return stops;
}

/// A function of the logits as Sampling::adjust_logits wants it, of {"id": bias}.
void read_logit_bias(const Fields& fields, const ServedModel& model, slm::Sampling& sampling) {
  const slm::Json* field = fields.find("logit_bias");
  if (field == nullptr) return;
  if (field->size() > most_biased) {
    throw bad_field("logit_bias", slm::text("has ", field->size(), " tokens, expected at most ", most_biased));
  }
  std::vector<std::pair<std::size_t, float>> biases;
  for (const auto& [name, value] : field->items()) {
    int id = -1;
    const char* const end = name.data() + name.size();
    const auto [stop, fault] = std::from_chars(name.data(), end, id);
    if (fault != std::errc{} || stop != end || id < 0 || id >= model.info.vocab) {
      throw bad_field("logit_bias",
                      slm::text("names the token ", slm::quote(name), ", expected ids of 0 to ", model.info.vocab - 1));
    }
    if (!value.is_number() || std::abs(value.get<double>()) > 100) {
      throw Fields::bad("logit_bias", value, "a number of -100 to 100");
    }
    biases.emplace_back(static_cast<std::size_t>(id), value.get<float>());
  }
  if (biases.empty()) return;
  sampling.adjust_logits = [biases](std::span<const slm::Token>, std::span<float> logits) {
    for (const auto& [id, bias] : biases) logits[id] += bias;
  };
}

slm::Sampling read_sampling(const Fields& fields, const ServedModel& model, const slm::Sampling& base) {
  slm::Sampling sampling = slm::with(base, model.suggested);
  const auto number = [&fields](const char* name, float otherwise) {
    return static_cast<float>(fields.number(name, otherwise));
  };
  sampling.temperature = number("temperature", sampling.temperature);
  sampling.top_p = std::max(number("top_p", sampling.top_p), std::numeric_limits<float>::min());
  sampling.top_k = static_cast<int>(std::max(fields.integer("top_k").value_or(sampling.top_k), std::int64_t{0}));
  sampling.min_p = number("min_p", sampling.min_p);
  sampling.presence_penalty = number("presence_penalty", 0);
  sampling.frequency_penalty = number("frequency_penalty", 0);
  sampling.repetition_penalty = number("repetition_penalty", sampling.repetition_penalty);
  const auto seed = fields.integer("seed");
  sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  sampling.ignore_end_tokens = fields.boolean("ignore_eos", false);
  if (const slm::Json* ids = fields.find("stop_token_ids")) {
    sampling.stop_tokens = read_ids("stop_token_ids", *ids, model);
  }
  read_logit_bias(fields, model, sampling);
  return sampling;
}

/// The template's variables of a request, in JSON: the program's, then those of the request.
std::string read_kwargs(const Fields& fields, const cli::ChatFormat& format) {
  std::string kwargs = format.kwargs;
  const auto set = [&kwargs](const char* field, const std::string& name, const slm::Json& value,
                             std::string_view source) {
    if (value.is_null()) return;
    if (name == "enable_thinking" && !value.is_boolean()) {
      throw Fields::bad(field, value, "true or false as enable_thinking");
    }
    kwargs = slm::with_kwarg(kwargs, name, source);
  };
  if (const std::string effort = fields.string("reasoning_effort", ""); !effort.empty()) {
    const bool off = effort == "none";
    const slm::Json value = off ? slm::Json(false) : slm::Json(effort);
    set("reasoning_effort", off ? "enable_thinking" : "reasoning_effort", value, slm::json_text(value));
  }
  if (const slm::Json* thinking = fields.find("enable_thinking")) {
    set("enable_thinking", "enable_thinking", *thinking, slm::json_text(*thinking));
  }
  if (const slm::Json* options = fields.find("chat_template_kwargs")) {
    const std::string sent = fields.text("chat_template_kwargs");
    JsonSource(sent).each([&](const std::string& name, std::string_view source) {
      set("chat_template_kwargs", name, options->at(name), source);
    });
  }
  return kwargs;
}

/// Whether the answer's reasoning is separated from its content.
bool read_reasoning_format(const Fields& fields, const ToolFields& tools) {
  const std::string format = fields.string("reasoning_format", "auto");
  if (format == "auto" || format == "deepseek") return true;
  if (format != "none") throw Fields::bad("reasoning_format", format, "none, auto or deepseek");
  if (!tools.list.empty()) throw unsupported("reasoning_format", "`none` with tools");
  return false;
}

/// The most tokens of the reasoning; nothing: it has no limit.
std::optional<int> read_reasoning_budget(const Fields& fields, const ServedModel& model) {
  constexpr const char* field = "reasoning_budget_tokens";
  const auto most = fields.integer(field);
  if (!most || *most < 0) return std::nullopt;
  if (model.chat->answer.reasoning_end().empty()) {
    throw unsupported(field, "A limit of the reasoning", "this model writes no tag that closes it");
  }
  return static_cast<int>(*most);
}

/// Throws where a message says no text: a string, a list of parts that are texts, or nothing beside calls.
void check_content(const slm::Json& message) {
  const Fields said(message);
  const slm::Json* const content = said.find("content");
  if (content == nullptr && said.string("role", "") == "assistant") return;
  if (content != nullptr && content->is_string()) return;
  if (content == nullptr || !content->is_array() || content->empty()) {
    throw Fields::bad("messages", message, "a string or a list of parts, at least one, as `content`");
  }
  for (const slm::Json& part : *content) {
    if (!part.is_object()) throw Fields::bad("messages", part, "an object as a part of `content`");
    if (Fields(part).string("type", "") != "text") throw unsupported("messages", "Content other than text");
    const slm::Json* const words = Fields(part).find("text");
    if (words == nullptr || !words->is_string()) throw Fields::bad("messages", part, "a string as `text` of a part");
  }
}

}  // namespace

void read_most(const Fields& fields, const char* name, std::optional<int>& most) {
  if (const auto count = fields.integer(name)) most = static_cast<int>(*count);
}

void check_prompt(const std::string& field, const std::vector<slm::Token>& prompt, int wanted,
                  const ServedModel& model) {
  if (prompt.empty()) throw bad_field(field, "has no tokens, expected at least one");
  const std::size_t context = static_cast<std::size_t>(model.info.context);
  if (prompt.size() + (wanted > 0 ? 1 : 0) <= context) return;
  const std::string asked =
      wanted == 0 ? slm::text("the ", field, " is too large: it has ", prompt.size(), " tokens")
                  : slm::text("you requested ", prompt.size() + static_cast<std::size_t>(wanted), " tokens (",
                              prompt.size(), " in the ", field, ", ", wanted, " in the completion)");
  Refusal refusal(
      400, "decode.prompt-too-long",
      slm::text("This model's maximum context length is ", context, " tokens. However, ", asked,
                ", which exceeds the available context size. Please reduce the length of the ", field, "."));
  refusal.param = field;
  refusal.code = "context_length_exceeded";
  refusal.more = {// llama.cpp's
                  {"type", "exceed_context_size_error"},
                  {"n_prompt_tokens", prompt.size()},
                  {"n_ctx", context}};
  throw refusal;
}

slm::Json parse_body(const HttpRequest& request) {
  try {
    return slm::parse_json_object(request.body, "the request's body", "Send one JSON object in UTF-8");
  } catch (const slm::Error& error) {
    throw Refusal(400, error.id(), error.what());
  }
}

std::vector<slm::Token> read_ids(const std::string& name, const slm::Json& list, const ServedModel& model) {
  if (!list.is_array()) throw Fields::bad(name, list, "a list of token ids");
  std::vector<slm::Token> ids;
  ids.reserve(list.size());
  for (const slm::Json& value : list) {
    const auto id = integer_of(value);
    if (!id || *id < 0 || *id >= model.info.vocab) {
      throw bad_field(name,
                      slm::text("holds ", slm::quote_json(value), ", expected ids of 0 to ", model.info.vocab - 1));
    }
    ids.push_back(static_cast<slm::Token>(*id));
  }
  return ids;
}

std::uint64_t read_tenant(const Fields& fields) {
  const std::string salt = fields.string("cache_salt", "");
  if (salt.empty()) return 0;
  if (const std::size_t length = slm::utf8::count(salt); length > longest_salt) {
    throw bad_field("cache_salt", slm::text("has ", length, " characters, expected at most ", longest_salt));
  }
  slm::Checksum sum;
  sum.add(std::as_bytes(std::span(salt)));
  return sum.value();
}

ChatPrompt read_messages(const Fields& fields, const ServedModel& model, const ToolFields& tools) {
  const slm::Json* list = fields.find("messages");
  if (list == nullptr) throw bad_field("messages", "is absent, expected a list of messages");
  if (!model.chat) throw refused_by(*model.no_chat);
  for (const slm::Json& message : *list) {
    if (!message.is_object()) throw Fields::bad("messages", message, "objects with role and content");
    const Fields said(message);
    if (said.has("function_call")) throw unsupported("messages", "`function_call`, which `tool_calls` replaced,");
    for (const char* name : {"prefix", "partial"}) {
      if (said.boolean(name, false)) throw unsupported("messages", slm::text("A message with `", name, "`"));
    }
    check_content(message);
  }
  const std::string kwargs = read_kwargs(fields, *model.chat);
  const bool chosen = fields.has("continue_final_message") || fields.has("add_generation_prompt");
  const bool prefills = model.prefills && !chosen && ends_with_answer(*list);
  const std::string sent = fields.text("messages"), documents = fields.text("documents");
  const std::string messages = prefills ? with_last_joined(sent) : sent;
  slm::ChatOptions options;
  options.kwargs = kwargs;
  options.documents = documents;
  options.tools = tools.list;
  options.continue_final_message = fields.boolean("continue_final_message", prefills);
  options.add_generation_prompt = fields.boolean("add_generation_prompt", !options.continue_final_message);
  if (options.continue_final_message && options.add_generation_prompt) {
    throw bad_field("continue_final_message", "excludes `add_generation_prompt`");
  }
  try {
    const slm::ChatTemplate& form = model.chat->form;
    const slm::jinja::Rendered prompt = form.render(messages, options);
    return {form.encode(model.tokenizer, prompt), model.chat->reasoning_after(prompt), prompt.text};
  } catch (const slm::Error& error) {
    throw refused_by(error).of(error.id() == "chat.no-tools" ? "tools" : "messages");
  }
}

TextRequest read_common(const Fields& fields, const ServedModel& model, const ReadingOptions& options,
                        const slm::Sampling& base) {
  TextRequest request;
  request.asked = asked_model(fields, model);
  request.sampling = read_sampling(fields, model, base);
  request.stop_tokens = request.sampling.stop_tokens;
  request.stops = read_stops(fields);
  request.include_stop = fields.boolean("include_stop_str_in_output", false);
  request.n = static_cast<int>(fields.integer("n").value_or(1));
  if (const auto best_of = fields.integer("best_of"); best_of && *best_of != request.n) {
    throw unsupported("best_of", "A `best_of` other than `n`");
  }
  request.min_tokens = static_cast<int>(fields.integer("min_tokens").value_or(0));
  request.return_token_ids = fields.boolean("return_token_ids", false);
  request.stream = fields.boolean("stream", false);
  if (const slm::Json* stream_options = fields.find("stream_options")) {
    if (!request.stream) throw bad_field("stream_options", "is only allowed where `stream` is true");
    const Fields asked(*stream_options);
    request.include_usage = asked.boolean("include_usage", false);
    request.usage_in_each = asked.boolean("continuous_usage_stats", false) && request.include_usage;
  }
  request.timings_per_token = fields.boolean("timings_per_token", false);
  request.return_progress = request.stream && fields.boolean("return_progress", false);
  request.tenant = read_tenant(fields);
  request.slot = static_cast<int>(fields.integer("id_slot").value_or(-1));
  request.priority = static_cast<int>(fields.integer("priority").value_or(0));
  if (request.priority != 0 && !options.priorities) throw unsupported("priority", "A `priority` other than 0");
  return request;
}

void check_size(const TextRequest& request, const ServedModel& model, const ReadingOptions& options) {
  if (request.choices() > options.most_choices) {
    throw bad_field("n", slm::text("times the number of prompts is ", request.choices(), ", expected at most ",
                                   options.most_choices));
  }
  const char* const field = request.chat ? "messages" : "prompt";
  for (const auto& prompt : request.prompts) check_prompt(field, prompt, request.max_tokens.value_or(1), model);
}

TextRequest read_completion(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                            std::string_view source) {
  add_defaults(body, on_completions, options.defaults);
  std::vector<std::string> ignored = check_fields(body, on_completions, options.strict_fields);
  const Fields fields(body, source);
  TextRequest request = read_common(fields, model, options);
  request.ignored = std::move(ignored);
  const bool echo = fields.boolean("echo", false);
  request.max_tokens = 16;
  for (const char* name : {"max_tokens", "n_predict"}) read_most(fields, name, request.max_tokens);
  if (*request.max_tokens == 0 && !echo) throw bad_field("max_tokens", "is 0, expected 1 or more without `echo`");
  if (const auto count = fields.integer("logprobs")) request.logprobs = static_cast<int>(*count);
  request.constraint = read_constraint(fields, model);
  request.prompts = read_prompts("prompt", fields, model, echo ? &request.echoes : nullptr);
  check_size(request, model, options);
  return request;
}

TextRequest read_chat(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                      std::string_view source) {
  add_defaults(body, on_chat, options.defaults);
  std::vector<std::string> ignored = check_fields(body, on_chat, options.strict_fields);
  const Fields fields(body, source);
  TextRequest request = read_common(fields, model, options);
  request.ignored = std::move(ignored);
  request.chat = true;
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    read_most(fields, name, request.max_tokens);
  }
  const auto alternatives = fields.integer("top_logprobs");
  if (fields.boolean("logprobs", false)) {
    request.logprobs = static_cast<int>(alternatives.value_or(0));
  } else if (alternatives.value_or(0) > 0) {
    throw bad_field("top_logprobs", "is only allowed where `logprobs` is true");
  }
  request.tools = read_tools(fields);
  request.verbose = fields.boolean("verbose", false);
  request.separates_reasoning = read_reasoning_format(fields, request.tools);
  ChatPrompt prompt = read_messages(fields, model, request.tools);
  request.prompts = {std::move(prompt.tokens)};
  request.reasoning = prompt.reasoning;
  request.reasoning_budget = read_reasoning_budget(fields, model);
  request.constraint = read_chat_constraint(fields, model, request.tools, request.reasoning);
  if (!request.sampling.ignore_end_tokens) {
    const std::vector<slm::Token> ends = model.chat->stop_tokens(model.info.vocab);
    request.sampling.stop_tokens.insert(request.sampling.stop_tokens.end(), ends.begin(), ends.end());
  }
  check_size(request, model, options);
  return request;
}

slm::Request TextRequest::choice(std::size_t i, const ServedModel& model) const {
  const auto choices_of_prompt = static_cast<std::size_t>(n);
  slm::Request request{
      .prompt = prompts[i / choices_of_prompt], .sampling = sampling, .constraint = constraint, .tenant = tenant};
  slm::Sampling& own = request.sampling;
  own.seed += i % choices_of_prompt;
  const int left = model.info.context - static_cast<int>(request.prompt.size());
  own.max_new_tokens = std::min(max_tokens.value_or(left), left);
  if (logprobs) {
    request.logprobs = {.prompt = !echoes.empty(),
                        .raw = !sampled_logprobs,
                        .sampled = sampled_logprobs,
                        .top = std::min(*logprobs, model.info.vocab)};
  }
  const std::size_t length = request.prompt.size();
  if (reasoning_budget) {
    const slm::AnswerFormat& form = model.chat->answer;
    const std::string begin{form.reasoning_begin()}, end{form.reasoning_end()};
    const std::vector<slm::TextPart> tag{{end}};
    own.adjust_logits =
        both(std::move(own.adjust_logits),
             ReasoningBudget{model.tokenizer, begin, end, model.tokenizer.encode(tag, false),
                             reasoning == Reasoning::begun, length, static_cast<std::size_t>(*reasoning_budget)});
  }
  if (min_tokens > 0) {
    std::vector<slm::Token> ends = own.stop_tokens;
    ends.insert(ends.end(), model.info.end_tokens.begin(), model.info.end_tokens.end());
    own.adjust_logits =
        both(std::move(own.adjust_logits), LeastLength{std::move(ends), length + static_cast<std::size_t>(min_tokens)});
  }
  return request;
}

}  // namespace serve
