// The fields of llama.cpp's routes: those of the routes with OpenAI's names, and llama.cpp's own.
#include <algorithm>
#include <vector>

#include "api/field_rows.hpp"

namespace serve {

namespace {

using rows::followed, rows::hint, rows::integer, rows::most_int, rows::most_tokens, rows::number, rows::refused;

constexpr unsigned answers = on_completion | on_infill;
constexpr double any_number = 1e300;

constexpr FieldRow own_rows[] = {
    followed("prompt", on_completion, FieldType::any,
             "text, token ids, both in one list, `{\"prompt_string\"}`, or a list of these"),
    followed("prompt", on_infill, FieldType::string, "text behind `input_prefix`, before the place to fill"),
    followed("input_prefix", on_infill, FieldType::string, "text before the place to fill"),
    followed("input_suffix", on_infill, FieldType::string, "text behind the place to fill"),
    followed("input_extra", on_infill, FieldType::list, "other files: `{\"filename\", \"text\"}`", "[[]]"),
    integer("n_predict", answers, -1, most_tokens, "most tokens of an answer; -1, the default: the rest of the context",
            "[-1]"),
    integer("max_tokens", answers, -1, most_tokens, "the same; `n_predict` has priority", "[-1]"),
    number("temperature", answers, 0, 100, "default 0.8; 0: greedy"),
    integer("top_k", answers, -1, most_int, "number of likeliest tokens to sample from; default 40; 0 and -1: all"),
    number("top_p", answers, 0, 1, "samples from the likeliest tokens with this total probability; default 0.95"),
    number("min_p", answers, 0, 1, "excludes tokens below this share of the largest probability; default 0.05"),
    number("repeat_penalty", answers, 1e-3, 1e3, "the same as `repetition_penalty`"),
    integer("seed", answers, -any_number, any_number, "choice i draws with `seed` + i; -1, the default: random",
            "[-1, 4294967295]"),
    followed("logit_bias", answers, FieldType::any,
             "`{\"id or text\": bias}` or `[[id or text, bias]]`, each of -100 to 100, or false: never", "[{}, []]"),
    integer("n_probs", answers, 0, 100, "alternatives per token in `completion_probabilities`", "[0]"),
    followed("post_sampling_probs", answers, FieldType::boolean,
             "these are probabilities of the distribution that tokens are drawn from"),
    followed("return_tokens", answers, FieldType::boolean, "the answer has `tokens`"),
    followed("response_fields", answers, FieldType::list, "members of the answer to keep, as paths with `/`", "[[]]"),
    followed("timings_per_token", answers, FieldType::boolean, "each event of a stream has `timings`"),
    followed("content", on_embedding, FieldType::any, "the same as `input`"),
    followed("query", on_rerank, FieldType::string, "text that the documents are compared with"),
    followed("documents", on_rerank, FieldType::list, "texts"),
    followed("texts", on_rerank, FieldType::list, "texts; the answer is then a list, as in TEI"),
    integer("top_n", on_rerank, 1, most_int, "number of results; default: all"),
    followed("return_text", on_rerank, FieldType::boolean, "results have the texts"),
    followed("filename", on_slots, FieldType::string, "name of a file in the folder of `--slot-save-path`"),

    hint("adaptive_decay", answers, "only with `adaptive_target`"),
    hint("backend_sampling", answers, "how another server runs a request; the answer is the same"),
    hint("speculative.n_max", answers, "drafts change no answer"),
    hint("speculative.n_min", answers, "drafts change no answer"),
    hint("speculative.p_min", answers, "drafts change no answer"),
    hint("stream_options", answers, "each answer has its counts of tokens"),
    refused("adaptive_target", answers, "[-1]", rows::samples),
    refused("echo", answers, "[false]", "`prompt` of the answer is the prompt"),
    refused("logprobs", answers, "[0, false]", "`n_probs` is the field"),
    refused("return_token_ids", answers, "[false]", "`return_tokens` is the field"),
};

/// The routes of llama.cpp on which a row of another route holds, too.
unsigned routes_like(const FieldRow& row) {
  constexpr unsigned prompts = on_chat | on_tokenize;
  unsigned routes = 0;
  if ((row.routes & on_completions) != 0) routes |= answers;
  if ((row.routes & prompts) == prompts) routes |= on_apply_template;
  if ((row.routes & on_embeddings) != 0) routes |= on_embedding;
  if ((row.routes & on_embeddings) != 0 && row.name != "input" && row.name != "normalize" &&
      row.name != "encoding_format") {
    routes |= on_rerank;
  }
  if (row.name == "model" || row.name == "cache_salt") routes |= on_slots;
  for (const FieldRow& own : own_rows) {
    if (own.name == row.name) routes &= ~own.routes;
  }
  return routes;
}

}  // namespace

std::vector<FieldRow> with_llama_rows(std::span<const FieldRow> rows) {
  std::vector<FieldRow> all(rows.begin(), rows.end());
  for (FieldRow& row : all) row.routes |= routes_like(row);
  const auto hints =
      std::find_if(all.begin(), all.end(), [](const auto& row) { return row.use != FieldUse::followed; });
  all.insert(hints, std::begin(own_rows), std::end(own_rows));
  return all;
}

}  // namespace serve
