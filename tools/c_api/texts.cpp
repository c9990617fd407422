// The C interface: tokenizers, chat templates, streams of text, and constraints.
#include <string>
#include <vector>

#include "handles.hpp"
#include "slm/grammar.hpp"
#include "slm/text/chat.hpp"
#include "slm/text/text_stream.hpp"

struct slm_stream {
  slm_stream(const slm::Tokenizer& tokenizer, std::span<const slm::Token> prompt, const std::vector<std::string>& stops)
      : stream(
            tokenizer, prompt, [this](std::string_view more) { text += more; }, stops) {}

  std::string text;
  slm::TextStream stream;
  bool finished = false;
};

namespace c_api { namespace {

std::vector<std::string> texts_of(const char* const* texts, std::size_t count, std::string_view name) {
  std::vector<std::string> copies;
  for (const char* const one : array(texts, count, name)) copies.emplace_back(&required(one, name));
  return copies;
}

slm::jinja::Rendered rendered(const slm_template* chat, const char* messages, const slm_template_options* options) {
  const auto given = read_struct(options, sizeof(slm_template_options), "slm_template_options");
  const bool continues = given.continue_final_message != 0;
  return required(chat, "chat")
      .chat.render(std::string_view(&required(messages, "messages")),
                   {.tools = optional_text(given.tools),
                    .documents = optional_text(given.documents),
                    .kwargs = optional_text(given.variables),
                    .add_generation_prompt = given.no_generation_prompt == 0 && !continues,
                    .continue_final_message = continues});
}

slm::Grammar grammar_of(std::int32_t kind, std::string_view text) {
  switch (kind) {
    case SLM_CONSTRAINT_JSON_SCHEMA: return slm::Grammar::json_schema(text);
    case SLM_CONSTRAINT_JSON: return slm::Grammar::json();
    case SLM_CONSTRAINT_REGEX: return slm::Grammar::regex(text);
    case SLM_CONSTRAINT_GBNF: return slm::Grammar::gbnf(text);
    default: break;
  }
  throw misuse("c.value", slm::text("expected one of SLM_CONSTRAINT_..., found ", kind), "Pass one of them");
}

}}  // namespace c_api

using c_api::give;
using c_api::guarded;
using c_api::required;

slm_status slm_tokenizer_load(const char* path, slm_tokenizer** out) {
  return guarded([&] {
    required(out, "out");
    *out = new slm_tokenizer(slm::Tokenizer::from(c_api::path_of(path, "path")));
  });
}

slm_status slm_tokenizer_vocab(const slm_tokenizer* tokenizer, int32_t* vocab) {
  return guarded([&] { required(vocab, "vocab") = required(tokenizer, "tokenizer").tokenizer.vocab(); });
}

slm_status slm_tokenizer_encode(const slm_tokenizer* tokenizer, const char* text, size_t size,
                                int32_t add_special_tokens, slm_token** out, size_t* count) {
  return guarded([&] {
    const auto bytes = c_api::characters(text, size, "text");
    const auto tokens = required(tokenizer, "tokenizer").tokenizer.encode(bytes, add_special_tokens != 0);
    give(std::span<const slm::Token>(tokens), out, count);
  });
}

slm_status slm_tokenizer_decode(const slm_tokenizer* tokenizer, const slm_token* tokens, size_t count,
                                int32_t skip_special_tokens, char** out, size_t* size) {
  return guarded([&] {
    const auto given = c_api::array(tokens, count, "tokens");
    const std::string text = required(tokenizer, "tokenizer").tokenizer.decode(given, skip_special_tokens != 0);
    give(std::span<const char>(text), out, size, 1);
  });
}

void slm_tokenizer_free(slm_tokenizer* tokenizer) { delete tokenizer; }

slm_status slm_template_load(const char* model_path, const char* choice, slm_template** out) {
  return guarded([&] {
    required(out, "out");
    const auto path = c_api::path_of(model_path, "model_path");
    *out = new slm_template{slm::ChatTemplate::from(path, std::string(c_api::optional_text(choice)))};
  });
}

slm_status slm_template_encode(const slm_template* chat, const slm_tokenizer* tokenizer, const char* messages,
                               const slm_template_options* options, slm_token** out, size_t* count) {
  return guarded([&] {
    const auto text = c_api::rendered(chat, messages, options);
    const auto tokens = chat->chat.encode(required(tokenizer, "tokenizer").tokenizer, text);
    give(std::span<const slm::Token>(tokens), out, count);
  });
}

slm_status slm_template_render(const slm_template* chat, const char* messages, const slm_template_options* options,
                               char** out, size_t* size) {
  return guarded([&] {
    const auto text = c_api::rendered(chat, messages, options).text;
    give(std::span<const char>(text), out, size, 1);
  });
}

slm_status slm_template_stop_tokens(const slm_template* chat, const slm_tokenizer* tokenizer, slm_token** out,
                                    size_t* count) {
  return guarded([&] {
    const auto stops = required(chat, "chat").chat.stops(required(tokenizer, "tokenizer").tokenizer);
    give(std::span<const slm::Token>(stops.tokens), out, count);
  });
}

void slm_template_free(slm_template* chat) { delete chat; }

slm_status slm_stream_create(const slm_tokenizer* tokenizer, const slm_template* chat, const slm_token* prompt,
                             size_t prompt_count, const char* const* stops, size_t stop_count, slm_stream** out) {
  return guarded([&] {
    required(out, "out");
    const slm::Tokenizer& of = required(tokenizer, "tokenizer").tokenizer;
    std::vector<std::string> ends = c_api::texts_of(stops, stop_count, "stops");
    if (chat != nullptr) {
      for (std::string& end : chat->chat.stops(of).strings) ends.push_back(std::move(end));
    }
    *out = new slm_stream(of, c_api::array(prompt, prompt_count, "prompt"), ends);
  });
}

slm_status slm_stream_push(slm_stream* stream, slm_token token, const char** text, size_t* size, int32_t* stopped) {
  return guarded([&] {
    slm_stream& of = required(stream, "stream");
    required(text, "text");
    required(size, "size");
    required(stopped, "stopped");
    of.text.clear();
    *stopped = of.finished || !of.stream(token) ? 1 : 0;
    *text = of.text.c_str();
    *size = of.text.size();
  });
}

slm_status slm_stream_finish(slm_stream* stream, const char** text, size_t* size) {
  return guarded([&] {
    slm_stream& of = required(stream, "stream");
    required(text, "text");
    required(size, "size");
    of.text.clear();
    if (!of.finished) of.stream.finish();
    of.finished = true;
    *text = of.text.c_str();
    *size = of.text.size();
  });
}

void slm_stream_free(slm_stream* stream) { delete stream; }

slm_status slm_constraint_create(const slm_tokenizer* tokenizer, int32_t kind, const char* text, size_t size,
                                 slm_constraint** out) {
  return guarded([&] {
    required(out, "out");
    const slm::Grammar grammar = c_api::grammar_of(kind, c_api::characters(text, size, "text"));
    *out = new slm_constraint{slm::constrain(grammar, required(tokenizer, "tokenizer").trie())};
  });
}

slm_status slm_constraint_choice(const slm_tokenizer* tokenizer, const char* const* texts, size_t count,
                                 slm_constraint** out) {
  return guarded([&] {
    required(out, "out");
    const slm::Grammar grammar = slm::Grammar::choice(c_api::texts_of(texts, count, "texts"));
    *out = new slm_constraint{slm::constrain(grammar, required(tokenizer, "tokenizer").trie())};
  });
}

void slm_constraint_free(slm_constraint* constraint) { delete constraint; }
