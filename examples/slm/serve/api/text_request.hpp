// TextRequest: what a client asks of /v1/completions or /v1/chat/completions, read from JSON and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/asked_model.hpp"
#include "api/field_table.hpp"
#include "api/prompt_progress.hpp"
#include "api/service.hpp"
#include "api/tool_fields.hpp"

namespace serve {

struct TextRequest {
  AskedModel asked;
  bool chat = false;
  std::vector<std::vector<slm::Token>> prompts;
  int n = 1;                            // choices of each prompt
  std::vector<std::string> echoes;      // text before the choices of each prompt; empty: none
  std::optional<int> max_tokens;        // of a choice; nothing: as many as the context has room for
  slm::Sampling sampling;               // of the first choice, except its length and min_tokens
  slm::ConstraintRef constraint;        // what an answer may be; null: anything
  int min_tokens = 0;                   // before the text may end by a token or a stop string
  std::uint64_t tenant = 0;             // of texts that may share pages
  std::vector<slm::Token> stop_tokens;  // that the client named
  std::vector<std::string> stops;       // that the client named
  bool include_stop = false;            // in the text
  std::optional<int> logprobs;          // alternatives of each token
  bool sampled_logprobs = false;        // of the distributions that tokens are drawn from, not of the model's
  bool token_deltas = false;            // one delta for each token
  bool return_token_ids = false;
  bool stream = false, include_usage = false, usage_in_each = false;
  bool timings_per_token = false;  // the answer, and each event of a stream, has `timings`
  bool return_progress = false;    // a stream reports how far the prompt of the first choice is read
  std::shared_ptr<PromptProgress> progress = nullptr;  // these reports; begin_choices() makes it
  bool verbose = false;                                // the whole answer of a chat has its prompt
  int priority = 0;
  int slot = -1;                    // keeps the first choice; -1: none
  ToolFields tools;                 // of a chat
  bool separates_reasoning = true;  // from the content of a chat's answer
  Reasoning reasoning = Reasoning::none;
  std::optional<int> reasoning_budget;  // tokens
  std::vector<std::string> ignored;     // fields that the route does not know

  std::size_t choices() const { return prompts.size() * static_cast<std::size_t>(n); }
  /// The engine's request for choice i.
  slm::Request choice(std::size_t i, const ServedModel& model) const;
};

struct ReadingOptions {
  std::size_t most_choices = 12800;          // of a request
  bool priorities = false;                   // whether clients may say which request goes first
  bool strict_fields = false;                // whether fields are refused that the route does not know
  slm::Json defaults = slm::Json::object();  // of fields that a request leaves out
};

/// The members of a request's body. Throws Refusal.
slm::Json parse_body(const HttpRequest& request);
std::vector<slm::Token> read_ids(const std::string& name, const slm::Json& list, const ServedModel& model);
/// A text, token ids, both in one list, llama.cpp's `{"prompt_string"}` or `{"content": [parts]}`, or a list of these.
/// texts: gets what the prompts say, where it is wanted. Throws Refusal.
std::vector<std::vector<slm::Token>> read_prompts(const char* name, const Fields& fields, const ServedModel& model,
                                                  std::vector<std::string>* texts = nullptr);
/// Throws Refusal where a prompt has no tokens, or the context no room for it and one of the wanted tokens.
void check_prompt(const std::string& field, const std::vector<slm::Token>& prompt, int wanted,
                  const ServedModel& model);
/// The tenant, whose texts may share pages: those with one `cache_salt`. Throws Refusal.
std::uint64_t read_tenant(const Fields& fields);

/// Whether the messages end with an assistant's text, which the answer may continue. Throws Refusal where they end with
/// two messages of the assistant.
bool ends_with_answer(const slm::Json& messages);
/// The JSON text of messages, the last of which gets its parts as one text, with empty lines between them.
std::string with_last_joined(const std::string& messages);

struct ChatPrompt {
  std::vector<slm::Token> tokens;
  Reasoning reasoning = Reasoning::none;
  std::string text;
};
/// The prompt of a list of messages, with the tools that it offers. Throws Refusal.
ChatPrompt read_messages(const Fields& fields, const ServedModel& model, const ToolFields& tools);

/// The fields that all routes read in the same way. base: the sampling of a request without fields. Throws Refusal.
TextRequest read_common(const Fields& fields, const ServedModel& model, const ReadingOptions& options,
                        const slm::Sampling& base = {.temperature = 1});
/// Sets `most` to the field's value, if the request has the field. Throws Refusal.
void read_most(const Fields& fields, const char* name, std::optional<int>& most);
/// Throws Refusal where the request has too many choices, or no room for one more token in a context where any are
/// wanted.
void check_size(const TextRequest& request, const ServedModel& model, const ReadingOptions& options);

/// source: the text of `body`, for the order of names in schemas and in what templates show. Throws Refusal.
TextRequest read_completion(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                            std::string_view source = {});
TextRequest read_chat(slm::Json body, const ServedModel& model, const ReadingOptions& options,
                      std::string_view source = {});

}  // namespace serve
