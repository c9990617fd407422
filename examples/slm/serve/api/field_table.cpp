#include "api/field_table.hpp"

#include <limits>

namespace serve {

namespace {

constexpr unsigned texts = on_completions | on_chat, prompts = on_chat | on_tokenize, all_texts = texts | on_embeddings;
constexpr double any_least = -std::numeric_limits<double>::infinity(), any_most = -any_least;
constexpr double most_int = std::numeric_limits<int>::max(), least_int = std::numeric_limits<int>::min();
constexpr double most_tokens = 1 << 30;

constexpr FieldRow integer(std::string_view name, unsigned routes, double least, double most, std::string_view text) {
  return {name, routes, FieldUse::followed, FieldType::integer, least, most, "[]", text};
}
constexpr FieldRow number(std::string_view name, unsigned routes, double least, double most, std::string_view text) {
  return {name, routes, FieldUse::followed, FieldType::number, least, most, "[]", text};
}
constexpr FieldRow followed(std::string_view name, unsigned routes, FieldType type, std::string_view text,
                            std::string_view neutral = "[]") {
  return {name, routes, FieldUse::followed, type, 0, 0, neutral, text};
}
constexpr FieldRow hint(std::string_view name, unsigned routes, std::string_view text) {
  return {name, routes, FieldUse::hint, FieldType::any, 0, 0, "[]", text};
}
constexpr FieldRow refused(std::string_view name, unsigned routes, std::string_view neutral, std::string_view text) {
  return {name, routes, FieldUse::refused, FieldType::any, 0, 0, neutral, text};
}

constexpr std::string_view constrains = "`structured_outputs` is the field for a constraint of the answer";
constexpr std::string_view samples = "the server has no such sampling method";
constexpr std::string_view cuts = "the server does not cut texts";
constexpr std::string_view thinks = "only the whole answer is limited";
constexpr std::string_view separates = "`reasoning_format` is the field";
constexpr std::string_view sees = "the server takes texts only";
constexpr std::string_view adapts = "`model` names the adapter";
constexpr std::string_view beams = "the server does not search by beams";
constexpr std::string_view embeds = "the server does not prepend an instruction; `input` must contain it";
constexpr std::string_view limits = "`max_tokens` limits the answer";
constexpr std::string_view templates = "the template of the model writes the prompt";
constexpr std::string_view wants_completion = "the field belongs to `/v1/completions`";
constexpr std::string_view wants_chat = "the field belongs to `/v1/chat/completions`";
constexpr std::string_view books = "for the client's own records";
constexpr std::string_view runs = "how another server runs a request; the answer is the same";

constexpr FieldRow table[] = {
    // Fields that affect the answer.
    followed("model", all_texts | on_tokenize | on_detokenize, FieldType::string, "name of a served model"),
    followed("prompt", on_completions, FieldType::any, "text, token ids, or a list of either"),
    followed("prompt", on_tokenize, FieldType::string, "text to tokenize"),
    followed("content", on_tokenize, FieldType::string, "text to tokenize, by default without special tokens"),
    followed("messages", prompts, FieldType::list, "the conversation: `role` and a text as `content`"),
    followed("chat_template_kwargs", prompts, FieldType::object,
             "variables of the chat template, such as `enable_thinking`", "[{}]"),
    followed("enable_thinking", prompts, FieldType::boolean, "the template's variable of this name"),
    followed("reasoning_effort", prompts, FieldType::string,
             "the template's variable of this name; `none`: `enable_thinking` is false"),
    followed("documents", prompts, FieldType::list, "documents for templates that show them"),
    followed("add_generation_prompt", prompts, FieldType::boolean,
             "true by default: the prompt ends where the answer begins"),
    followed("continue_final_message", prompts, FieldType::boolean, "the answer continues the last message's text"),
    followed("tools", prompts, FieldType::list, "functions that the answer may call: `name`, `parameters` and more",
             "[[]]"),
    followed("tool_choice", prompts, FieldType::any,
             "`auto` by default; `none`: no tool is offered; `required` or `{\"function\": {\"name\"}}`: the answer is "
             "a call",
             "[\"\"]"),
    followed("parallel_tool_calls", on_chat, FieldType::boolean, "false: the answer ends after its first call"),
    followed("reasoning_format", on_chat, FieldType::string,
             "`auto` and `deepseek`: the answer's reasoning is in `reasoning_content`; `none`: in `content`", "[\"\"]"),
    followed("input", on_embeddings, FieldType::any, "text, token ids, or a list of either"),
    integer("max_tokens", on_completions, 0, most_tokens, "tokens of an answer, 16 by default; 0 only with `echo`"),
    integer("max_tokens", on_chat, 1, most_tokens, "most tokens of an answer; default: the rest of the context"),
    integer("max_completion_tokens", on_chat, 1, most_tokens, "the same; has priority over `max_tokens`"),
    number("temperature", texts, 0, 2, "default 1; 0: greedy"),
    number("top_p", texts, 0, 1, "samples from the likeliest tokens with this total probability; 0: the likeliest one"),
    integer("top_k", texts, -1, most_int, "number of likeliest tokens to sample from; 0 and -1: all"),
    number("min_p", texts, 0, 1, "excludes tokens below this share of the largest probability"),
    number("presence_penalty", texts, -2, 2, "subtracted from the logits of tokens in the answer"),
    number("frequency_penalty", texts, -2, 2, "the same, per occurrence in the answer"),
    number("repetition_penalty", texts, 1e-3, 1e3, "divides the logits of tokens of the text; 1: no effect"),
    followed("logit_bias", texts, FieldType::object, "`{\"id\": bias}`, each of -100 to 100", "[{}, []]"),
    integer("seed", texts, any_least, any_most, "choice i draws with `seed` + i; random by default"),
    integer("n", texts, 1, 128, "choices per prompt"),
    integer("best_of", texts, 1, most_int, "must equal `n`"),
    integer("min_tokens", texts, 0, most_int, "fewest tokens before an end token or a stop string can end the text"),
    followed("stop", texts, FieldType::any, "a string or up to 32, each of up to 256 characters", "[\"\", [], [\"\"]]"),
    followed("stop_token_ids", texts, FieldType::list, "tokens that end the text", "[[]]"),
    followed("ignore_eos", texts, FieldType::boolean, "end tokens do not end the text"),
    followed("include_stop_str_in_output", texts, FieldType::boolean, "the text includes the stop string or token"),
    followed("response_format", texts, FieldType::object,
             "`type`: `text`, `json_object` or `json_schema` with `json_schema.schema`; `strict` changes nothing",
             "[{}, {\"type\": \"text\"}]"),
    followed("structured_outputs", texts, FieldType::object,
             "one of `json`, `regex`, `choice`, `grammar`, `json_object`, with `whitespace_pattern` or "
             "`disable_any_whitespace`",
             "[{}]"),
    followed("json_schema", texts, FieldType::object, "the answer is JSON of this schema"),
    followed("grammar", texts, FieldType::string, "the answer is a text of this grammar in llama.cpp's syntax",
             "[\"\"]"),
    followed("guided_json", texts, FieldType::any, "the answer is JSON of this schema, an object or its text"),
    followed("guided_regex", texts, FieldType::string, "the answer matches as a whole", "[\"\"]"),
    followed("guided_choice", texts, FieldType::list, "the answer is one of these texts", "[[]]"),
    followed("guided_grammar", texts, FieldType::string, "the same as `grammar`", "[\"\"]"),
    followed("guided_whitespace_pattern", texts, FieldType::string, "white space in `guided_json` and other schemas"),
    followed("echo", on_completions, FieldType::boolean, "the prompt precedes the text, also in `logprobs`"),
    integer("logprobs", on_completions, 0, 20, "alternatives per token"),
    followed("logprobs", on_chat, FieldType::boolean, "log-probabilities of the answer"),
    integer("top_logprobs", on_chat, 0, 20, "alternatives per token; needs `logprobs`"),
    followed("stream", texts, FieldType::boolean, "the answer as server-sent events"),
    followed("stream_options", texts, FieldType::object, "`include_usage`, `continuous_usage_stats`; needs `stream`"),
    followed("return_token_ids", texts, FieldType::boolean, "the answer has `token_ids` and `prompt_token_ids`"),
    followed("add_special_tokens", on_completions | on_embeddings | on_tokenize, FieldType::boolean,
             "adds the special tokens of the model; default true"),
    integer("priority", texts, least_int, most_int, "lower ones first; other than 0 only with `--priorities`"),
    followed("cache_salt", all_texts, FieldType::string, "requests with the same salt share cached pages", "[\"\"]"),
    followed("pooling", on_embeddings, FieldType::string, "pooling of a text's vectors: `mean` or `last`"),
    followed("normalize", on_embeddings, FieldType::boolean, "scale vectors to length 1; true by default"),
    followed("encoding_format", on_embeddings, FieldType::string, "`float` or `base64`"),
    followed("add_special", on_tokenize, FieldType::boolean, "with `content`: add special tokens; false by default"),
    followed("parse_special", on_tokenize, FieldType::boolean, "false: names of control tokens are plain text"),
    followed("with_pieces", on_tokenize, FieldType::boolean, "`tokens` are objects with `id` and `piece`"),
    followed("return_token_strs", on_tokenize, FieldType::boolean, "the answer has `token_strs`"),
    followed("tokens", on_detokenize, FieldType::list, "token ids"),
    followed("lora_name", on_load_adapter | on_unload_adapter, FieldType::string, "name of the adapter's model"),
    followed("lora_path", on_load_adapter, FieldType::string, "the adapter's folder"),
    followed("load_inplace", on_load_adapter, FieldType::boolean, "replace an adapter of this name"),

    // Fields that change no answer.
    hint("user", all_texts | on_tokenize, books),
    hint("metadata", all_texts, books),
    hint("store", texts, books),
    hint("service_tier", texts, runs),
    hint("safety_identifier", texts, books),
    hint("prompt_cache_key", texts, runs),
    hint("prompt_cache_retention", texts, runs),
    hint("prediction", texts, runs),
    hint("request_id", all_texts, books),
    hint("rid", all_texts, books),
    hint("cache_prompt", texts, runs),
    hint("id_slot", texts, runs),
    hint("keep_alive", all_texts, runs),
    hint("timings_per_token", texts, "the answer has the times of another server's steps"),
    hint("return_progress", texts, "the stream reports how far the prompt is read"),
    hint("parallel_tool_calls", on_completions | on_tokenize, "only with tools"),
    hint("reasoning_effort", on_completions, "only with a chat template"),
    hint("verbosity", texts, "no known template has it"),
    hint("documents", on_completions, "only with a chat template"),
    hint("min_keep", texts, "least number of candidates; one always remains"),
    hint("n_keep", texts, "only for context shifting"),
    hint("length_penalty", texts, "only with beams"),
    hint("early_stopping", texts, "only with beams"),
    hint("guided_decoding_backend", texts, runs),
    hint("spaces_between_special_tokens", texts, "only for visible special tokens"),

    // Fields that would change an answer but are not supported.
    refused("max_completion_tokens", on_completions, "[]", limits),
    refused("max_output_tokens", texts, "[]", limits),
    refused("max_new_tokens", texts, "[]", limits),
    refused("n_predict", texts, "[-1]", limits),
    refused("num_predict", texts, "[-1]", limits),
    refused("max_length", texts, "[]", limits),
    refused("min_new_tokens", texts, "[0]", "`min_tokens` is the field"),
    refused("min_length", texts, "[0]", "`min_tokens` is the field"),
    refused("t_max_predict_ms", texts, "[0, -1]", "answers are not limited in time"),
    refused("max_time", texts, "[]", "answers are not limited in time"),
    refused("messages", on_completions, "[[]]", wants_chat),
    refused("prompt", on_chat, "[\"\"]", wants_completion),
    refused("echo", on_chat, "[false]", wants_completion),
    refused("suffix", texts, "[\"\"]", "filling in the middle is not supported"),
    refused("top_logprobs", on_completions, "[0]", "`logprobs` is the number of alternatives"),
    refused("n_probs", texts, "[0]", "`logprobs` is the field"),
    refused("top_n_tokens", texts, "[0]", "`logprobs` is the field"),
    refused("post_sampling_probs", texts, "[false]", "log-probabilities are those of the model"),
    refused("prompt_logprobs", texts, "[]", "`echo` with `logprobs` has those of the prompt"),
    refused("return_tokens", texts, "[false]", "`return_token_ids` is the field"),
    refused("return_tokens_as_token_ids", texts, "[false]", "`return_token_ids` is the field"),
    refused("return_hidden_states", texts, "[false]", "answers have no hidden states"),
    refused("return_full_text", texts, "[false]", "`echo` is the field"),
    refused("response_fields", texts, "[[]]", "answers are whole"),
    refused("details", texts, "[false]", "answers always have the same form"),
    refused("decoder_input_details", texts, "[false]", "`echo` with `logprobs` has those of the prompt"),
    refused("detokenize", texts, "[true]", "answers are texts"),
    refused("skip_special_tokens", texts, "[true]", "special tokens are omitted from the text"),
    refused("stream_interval", texts, "[0, 1]", "a stream sends each token immediately"),
    refused("no_stop_trim", texts, "[false]", "`include_stop_str_in_output` is the field"),
    refused("stop_regex", texts, "[\"\", []]", "stop strings are plain texts"),
    refused("stop_strings", texts, "[\"\", []]", "`stop` is the field"),
    refused("stop_sequences", texts, "[[]]", "`stop` is the field"),

    refused("tools", on_completions, "[[]]", wants_chat),
    refused("tool_choice", on_completions, "[\"none\", \"auto\", \"\"]", wants_chat),
    refused("functions", texts | on_tokenize, "[[]]", "`tools` is the field"),
    refused("function_call", texts | on_tokenize, "[\"none\", \"auto\", \"\"]", "`tool_choice` is the field"),
    refused("web_search_options", texts, "[]", "the server does not search"),
    refused("moderation", texts, "[]", "moderation is not supported"),

    refused("structural_tag", texts, "[\"\", {}]", constrains),
    refused("grammar_lazy", texts, "[false]", constrains),
    refused("grammar_triggers", texts, "[[]]", constrains),
    refused("preserved_tokens", texts, "[[]]", constrains),
    refused("regex", texts, "[\"\"]", constrains),
    refused("ebnf", texts, "[\"\"]", constrains),
    refused("format", texts, "[\"\"]", constrains),
    refused("force_words_ids", texts, "[[]]", constrains),
    refused("allowed_token_ids", texts, "[[]]", "`logit_bias` is the field"),
    refused("bad_words", texts, "[[]]", "`logit_bias` is the field"),
    refused("bad_words_ids", texts, "[[]]", "`logit_bias` is the field"),
    refused("suppress_tokens", texts, "[[]]", "`logit_bias` is the field"),
    refused("begin_suppress_tokens", texts, "[[]]", "`logit_bias` is the field"),
    refused("sequence_bias", texts, "[{}]", "`logit_bias` is the field"),
    refused("forced_bos_token_id", texts, "[]", constrains),
    refused("forced_eos_token_id", texts, "[]", constrains),
    refused("logits_processors", texts, "[[]]", samples),
    refused("custom_logit_processor", texts, "[\"\"]", samples),
    refused("custom_params", texts, "[{}]", samples),

    refused("repeat_penalty", texts, "[1]", "`repetition_penalty` is the field"),
    refused("repeat_last_n", texts, "[-1, 64]", "penalties regard the whole text"),
    refused("penalty_last_n", texts, "[-1, 64]", "penalties regard the whole text"),
    refused("encoder_repetition_penalty", texts, "[1]", samples),
    refused("no_repeat_ngram_size", texts, "[0]", samples),
    refused("penalty_alpha", texts, "[0]", samples),
    refused("sampling_seed", texts, "[]", "`seed` is the field"),
    refused("do_sample", texts, "[true]", "`temperature` 0 is the way"),
    refused("mirostat", texts, "[0]", samples),
    refused("mirostat_mode", texts, "[0]", samples),
    refused("mirostat_tau", texts, "[5]", samples),
    refused("mirostat_eta", texts, "[0.1]", samples),
    refused("dynatemp_range", texts, "[0]", samples),
    refused("dynatemp_exponent", texts, "[1]", samples),
    refused("dynamic_temperature", texts, "[false]", samples),
    refused("smoothing_factor", texts, "[0]", samples),
    refused("typical_p", texts, "[1]", samples),
    refused("typical", texts, "[1]", samples),
    refused("tfs_z", texts, "[1]", samples),
    refused("tfs", texts, "[1]", samples),
    refused("top_a", texts, "[0]", samples),
    refused("epsilon_cutoff", texts, "[0]", samples),
    refused("eta_cutoff", texts, "[0]", samples),
    refused("xtc_probability", texts, "[0]", samples),
    refused("xtc_threshold", texts, "[0.1]", samples),
    refused("dry_multiplier", texts, "[0]", samples),
    refused("dry_base", texts, "[1.75]", samples),
    refused("dry_allowed_length", texts, "[2]", samples),
    refused("dry_penalty_last_n", texts, "[-1, 0]", samples),
    refused("dry_sequence_breakers", texts, "[[], [\"\\n\", \":\", \"\\\"\", \"*\"]]", samples),
    refused("top_n_sigma", texts, "[0, -1]", samples),
    refused("samplers", texts, "[[], \"\"]", samples),
    refused("sampler_order", texts, "[[]]", samples),
    refused("watermark", texts, "[false]", samples),
    refused("guidance_scale", texts, "[1]", samples),
    refused("negative_prompt", texts, "[\"\"]", samples),
    refused("use_beam_search", texts, "[false]", beams),
    refused("num_beams", texts, "[1]", beams),
    refused("num_beam_groups", texts, "[1]", beams),
    refused("diversity_penalty", texts, "[0]", beams),
    refused("num_return_sequences", texts, "[1]", "`n` is the field"),
    refused("n_cmpl", texts, "[1]", "`n` is the field"),
    refused("n_indent", texts, "[0]", samples),
    refused("n_discard", texts, "[0]", "contexts are not shifted"),
    refused("options", texts, "[{}]", "send each option as a field of the request"),

    refused("lora", all_texts, "[[]]", adapts),
    refused("lora_path", all_texts, "[\"\", []]", adapts),
    refused("adapter_id", all_texts, "[\"\"]", adapts),
    refused("truncate", texts, "[0, false]", cuts),
    refused("truncate_prompt_tokens", all_texts | on_tokenize, "[]", cuts),
    refused("prompt_embeds", texts, "[]", sees),
    refused("image_data", texts, "[[]]", sees),
    refused("images", texts, "[[]]", sees),
    refused("multimodal_data", texts, "[{}, []]", sees),
    refused("mm_processor_kwargs", all_texts | on_tokenize, "[{}]", sees),
    refused("media_io_kwargs", texts | on_tokenize, "[{}]", sees),
    refused("modalities", texts, "[[], [\"text\"]]", sees),
    refused("audio", texts, "[{}]", sees),

    refused("chat_template", texts | on_tokenize, "[\"\"]", templates),
    refused("chat_template_kwargs", on_completions, "[{}]", wants_chat),
    refused("template", texts, "[\"\"]", templates),
    refused("system", texts, "[\"\"]", "a message of the role `system` is the way"),
    refused("raw", texts, "[false]", templates),
    refused("date_string", texts | on_tokenize, "[]", templates),
    refused("strftime_now", texts | on_tokenize, "[]", templates),
    refused("add_generation_prompt", on_completions, "[true]", wants_chat),
    refused("continue_final_message", on_completions, "[false]", wants_chat),
    refused("add_special_tokens", on_chat, "[false]", templates),
    refused("enable_thinking", on_completions, "[]", wants_chat),
    refused("think", texts, "[]", "`chat_template_kwargs` has `enable_thinking`"),
    refused("thinking", texts, "[]", "`chat_template_kwargs` has `enable_thinking`"),
    refused("thinking_budget", texts, "[]", thinks),
    refused("thinking_token_budget", texts, "[]", thinks),
    refused("thinking_budget_tokens", texts, "[-1]", thinks),
    refused("reasoning_budget_tokens", texts, "[-1]", thinks),
    refused("thinking_forced_open", texts, "[false]", templates),
    refused("reasoning", texts, "[{}]", "`reasoning_effort` is the field"),
    refused("reasoning_format", on_completions, "[\"none\"]", wants_chat),
    refused("reasoning_in_content", texts, "[false]", separates),
    refused("separate_reasoning", on_chat, "[true]", separates),
    refused("separate_reasoning", on_completions, "[false]", wants_chat),
    refused("stream_reasoning", on_chat, "[true]", "streams contain the reasoning"),
    refused("stream_reasoning", on_completions, "[false]", wants_chat),
    refused("include_reasoning", texts, "[true]", separates),

    refused("dimensions", on_embeddings, "[]", "vectors have the model's width"),
    refused("embd_normalize", on_embeddings, "[2]", "`normalize` is the field"),
    refused("normalize_embeddings", on_embeddings, "[true]", "`normalize` is the field"),
    refused("pooling_type", on_embeddings, "[\"\"]", "`pooling` is the field"),
    refused("prompt_name", on_embeddings, "[\"\"]", embeds),
    refused("prompt", on_embeddings, "[\"\"]", embeds),
    refused("instruction", on_embeddings, "[\"\"]", embeds),
    refused("input_type", on_embeddings, "[\"\"]", embeds),
    refused("task", on_embeddings, "[\"\"]", embeds),
    refused("output_dtype", on_embeddings, "[\"float\", \"float32\"]", "vectors have 32-bit floating-point numbers"),
    refused("output_dimension", on_embeddings, "[]", "vectors have the model's width"),
    refused("embed_dtype", on_embeddings, "[\"float32\"]", "vectors have 32-bit floating-point numbers"),
    refused("embedding_types", on_embeddings, "[[], [\"float\"]]", "vectors have 32-bit floating-point numbers"),
    refused("truncate", on_embeddings, "[false, \"NONE\"]", cuts),
    refused("truncation", on_embeddings, "[false]", cuts),
    refused("messages", on_embeddings, "[[]]", "`input` is the field"),
    refused("content", on_embeddings, "[\"\"]", "`input` is the field"),
    refused("late_chunking", on_embeddings, "[false]", "each text has one vector"),
    refused("skip_special_tokens", on_detokenize, "[false]", "the text has all special tokens"),
};

}  // namespace

std::span<const FieldRow> field_table() { return table; }

}  // namespace serve
