/* The C interface computes what the C++ interface computes.
 * usage: c-api-test SOURCE_FOLDER */
#include <math.h>

#include "check.h"
#include "expected.h"

enum { MOST = 24, WIDEST = 200000 };

static const char* const text = "def read_config(path):";
static const char* const schema =
    "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 99}}, "
    "\"required\": [\"n\"], \"additionalProperties\": false}";

typedef struct answer {
  slm_token tokens[MOST];
  size_t count;
  size_t stop_after; /* 0: do not stop */
  double logprobs;
  size_t alternatives;
} answer;

static int keep(void* user, const slm_generated* token) {
  answer* of = user;
  if (of->count < MOST) of->tokens[of->count++] = token->token;
  if (token->top_count > 0) {
    of->logprobs += token->logprob;
    of->alternatives += token->top_count;
  }
  return of->stop_after != 0 && of->count == of->stop_after;
}

static int count_progress(void* user, double share) {
  ++*(int*)user;
  return share > 1;
}

static slm_request request_for(const slm_token* prompt, size_t count) {
  slm_request request;
  memset(&request, 0, sizeof request);
  request.size = sizeof request;
  request.prompt = prompt;
  request.prompt_count = count;
  request.max_new_tokens = MOST;
  request.seed = 7;
  return request;
}

static void check_same(const answer* found, const slm_token* expected, size_t count) {
  CHECK(count > 0 && found->count == count);
  CHECK(memcmp(found->tokens, expected, count * sizeof *expected) == 0);
}

static void test_texts(const slm_tokenizer* tokenizer, const char* target, slm_token** prompt, size_t* count) {
  slm_token expected[WIDEST / 1000];
  const size_t expected_count = expected_tokens(target, text, expected, WIDEST / 1000);
  char* decoded = NULL;
  size_t size = 0;
  slm_stream* stream = NULL;
  const char* piece = NULL;
  const char* const stops[] = {"config"};
  char all[100] = "";
  int32_t stopped = 0;
  size_t i;

  CHECK_OK(slm_tokenizer_encode(tokenizer, text, strlen(text), 1, prompt, count));
  CHECK(*count == expected_count && memcmp(*prompt, expected, *count * sizeof *expected) == 0);
  CHECK_OK(slm_tokenizer_decode(tokenizer, *prompt, *count, 1, &decoded, &size));
  CHECK(size == strlen(text) && strcmp(decoded, text) == 0);
  slm_free(decoded);

  CHECK_OK(slm_stream_create(tokenizer, NULL, NULL, 0, stops, 1, &stream));
  for (i = 0; i < *count && !stopped; ++i) {
    CHECK_OK(slm_stream_push(stream, (*prompt)[i], &piece, &size, &stopped));
    strncat(all, piece, size);
  }
  CHECK_OK(slm_stream_finish(stream, &piece, &size));
  strncat(all, piece, size);
  CHECK(stopped && strcmp(all, "def read_") == 0);
  slm_stream_free(stream);
}

static void test_template(const char* target) {
  slm_template* chat = NULL;
  char* rendered = NULL;
  size_t size = 0;
  const char* const messages = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
  slm_template_options options;
  CHECK_OK(slm_template_load(target, "chatml", &chat));
  CHECK_OK(slm_template_render(chat, messages, NULL, &rendered, &size));
  CHECK(strstr(rendered, "<|im_start|>user\nHi<|im_end|>") != NULL && strstr(rendered, "assistant") != NULL);
  slm_free(rendered);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.no_generation_prompt = 1;
  CHECK_OK(slm_template_render(chat, messages, &options, &rendered, &size));
  CHECK(strstr(rendered, "assistant") == NULL);
  slm_free(rendered);
  CHECK(slm_template_render(chat, "[1", NULL, &rendered, &size) == SLM_ERROR_FAILED);
  slm_template_free(chat);
}

static void test_generator(const slm_model* target, const slm_model* draft, const char* path,
                           const slm_tokenizer* tokenizer, const slm_token* prompt, size_t count) {
  slm_token expected[MOST];
  slm_request request = request_for(prompt, count);
  slm_generator* generator = NULL;
  slm_constraint* constraint = NULL;
  slm_drafting drafting;
  slm_stats stats;
  answer found = {{0}, 0, 0, 0, 0};
  size_t expected_count = expected_answer(path, NULL, NULL, prompt, count, 0, expected, MOST);
  memset(&drafting, 0, sizeof drafting);
  drafting.size = sizeof drafting;
  drafting.model = draft;
  drafting.draft_tokens = 3;
  stats.size = sizeof stats;
  CHECK_OK(slm_generator_create(target, &drafting, &generator));
  CHECK_OK(slm_generate(generator, &request, keep, &found, &stats));
  check_same(&found, expected, expected_count);
  CHECK(stats.new_tokens == (int64_t)expected_count && stats.prompt_tokens == (int64_t)count);
  CHECK(stats.accepted > 0 && stats.steps < stats.new_tokens);

  memset(&found, 0, sizeof found);
  request.temperature = 0.8f;
  request.top_logprobs = 2;
  expected_count = expected_answer(path, NULL, NULL, prompt, count, 0.8f, expected, MOST);
  CHECK_OK(slm_generate(generator, &request, keep, &found, &stats));
  check_same(&found, expected, expected_count);
  CHECK(found.alternatives == 2 * found.count && found.logprobs < 0 && stats.reused_tokens > 0);

  memset(&found, 0, sizeof found);
  found.stop_after = 2;
  CHECK_OK(slm_generate(generator, &request, keep, &found, &stats));
  CHECK(found.count == 2 && stats.finish_reason == SLM_FINISH_CALLBACK);

  memset(&found, 0, sizeof found);
  request = request_for(prompt, count);
  expected_count = expected_answer(path, NULL, schema, prompt, count, 0, expected, MOST);
  CHECK_OK(slm_constraint_create(tokenizer, SLM_CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &constraint));
  request.constraint = constraint;
  CHECK_OK(slm_generate(generator, &request, keep, &found, NULL));
  check_same(&found, expected, expected_count);
  slm_constraint_free(constraint);
  slm_generator_free(generator);
}

static int run_reversed(void* user, int32_t parts, void (*part)(void* loop, int32_t index), void* loop) {
  ++*(int*)user;
  while (parts-- > 0) part(loop, parts);
  return 0;
}

static void test_executor(const char* path, const slm_token* prompt, size_t count) {
  static float expected[WIDEST];
  const size_t expected_count = expected_logits(path, prompt, count, expected, WIDEST);
  const float* values = NULL;
  size_t width = 0;
  slm_model* model = NULL;
  slm_session* session = NULL;
  slm_load_options options;
  slm_executor executor;
  int runs = 0;
  memset(&options, 0, sizeof options);
  memset(&executor, 0, sizeof executor);
  options.size = sizeof options;
  options.executor = &executor;
  executor.size = sizeof executor;
  executor.threads = 3;
  executor.run = run_reversed;
  executor.user = &runs;
  CHECK_OK(slm_model_load(path, &options, &model));
  memset(&executor, 0, sizeof executor); /* it was copied */
  CHECK_OK(slm_session_create(model, &session));
  CHECK_OK(slm_session_forward(session, prompt, count, SLM_ROWS_LOGITS, 1, &values, &width));
  CHECK(width == expected_count && memcmp(values, expected, width * sizeof *values) == 0 && runs > 0);
  slm_session_free(session);
  slm_model_free(model);
}

static void test_rows(const slm_model* target, const char* path, const slm_token* prompt, size_t count) {
  static float expected[WIDEST];
  const float* values = NULL;
  float* embedding = NULL;
  size_t width = 0, length = 0;
  slm_session* session = NULL;
  size_t expected_count = expected_logits(path, prompt, count, expected, WIDEST);
  CHECK_OK(slm_session_create(target, &session));
  CHECK_OK(slm_session_forward(session, prompt, count, SLM_ROWS_LOGITS, 1, &values, &width));
  CHECK(width == expected_count && memcmp(values, expected, width * sizeof *values) == 0);
  CHECK_OK(slm_session_truncate(session, 1));
  CHECK_OK(slm_session_length(session, &length));
  CHECK(length == 1);
  CHECK_OK(slm_session_forward(session, prompt + 1, count - 1, SLM_ROWS_LOGITS, 1, &values, &width));
  CHECK(memcmp(values, expected, width * sizeof *values) == 0);
  CHECK_FAILS(slm_session_truncate(session, count + 1), SLM_ERROR_FAILED, "sequence.truncate");
  slm_session_free(session);

  expected_count = expected_embedding(path, prompt, count, expected, WIDEST);
  CHECK_OK(slm_embed(target, prompt, count, SLM_POOLING_MEAN, &embedding, &width));
  CHECK(width == expected_count && width > 0 && memcmp(embedding, expected, width * sizeof *embedding) == 0);
  slm_free(embedding);
}

static void count_wakes(void* user) { ++*(int*)user; }

static void test_engine(const slm_model* target, const char* path, const slm_token* prompt, size_t count) {
  slm_token expected[MOST];
  const size_t expected_count = expected_answer(path, NULL, NULL, prompt, count, 0, expected, MOST);
  slm_engine* engine = NULL;
  slm_answer* answers[4];
  answer found[4];
  slm_request request = request_for(prompt, count);
  slm_scheduling scheduling;
  slm_generated token;
  slm_stats stats;
  float* embedding = NULL;
  size_t width = 0, i;
  int32_t busy = 1, state = 0;
  int wakes = 0;
  memset(found, 0, sizeof found);
  memset(&scheduling, 0, sizeof scheduling);
  scheduling.size = sizeof scheduling;
  scheduling.wake = count_wakes;
  scheduling.user = &wakes;
  token.size = sizeof token;
  stats.size = sizeof stats;
  CHECK_OK(slm_engine_create(target, NULL, &engine));
  CHECK_OK(slm_engine_submit(engine, &request, NULL, &answers[0]));
  CHECK_OK(slm_engine_submit(engine, &request, &scheduling, &answers[1]));
  CHECK_OK(slm_engine_submit(engine, &request, NULL, &answers[2]));
  request.pooling = SLM_POOLING_LAST;
  CHECK_OK(slm_engine_submit(engine, &request, NULL, &answers[3]));
  CHECK_OK(slm_answer_cancel(answers[2]));
  CHECK_OK(slm_answer_poll(answers[0], &token, &state));
  CHECK(state == SLM_ANSWER_PENDING);
  for (i = 0; i < 3 && busy; ++i) CHECK_OK(slm_engine_step(engine, &busy));
  while (busy) CHECK_OK(slm_engine_step_for(engine, 0.01, &busy));
  for (i = 0; i < 4; ++i) {
    do {
      CHECK_OK(slm_answer_poll(answers[i], &token, &state));
      if (state == SLM_ANSWER_TOKEN) keep(&found[i], &token);
    } while (state == SLM_ANSWER_TOKEN);
    CHECK(state == SLM_ANSWER_ENDED);
  }
  check_same(&found[0], expected, expected_count);
  check_same(&found[1], expected, expected_count);
  CHECK(wakes > 0 && found[2].count == 0 && found[3].count == 0);
  CHECK_OK(slm_answer_stats(answers[2], &stats));
  CHECK(stats.finish_reason == SLM_FINISH_CANCELLED);
  CHECK_OK(slm_answer_embedding(answers[3], &embedding, &width));
  CHECK(width > 0 && isfinite(embedding[0]));
  slm_free(embedding);

  request = request_for(prompt, count);
  request.max_new_tokens = 1000000;
  slm_answer_free(answers[0]);
  CHECK_OK(slm_engine_submit(engine, &request, NULL, &answers[0]));
  slm_engine_free(engine); /* ends the request; its answer can still be read */
  CHECK_OK(slm_answer_wait(answers[0], &token, &state));
  CHECK(state == SLM_ANSWER_ENDED);
  for (i = 0; i < 4; ++i) slm_answer_free(answers[i]);
}

static void test_estimate(const slm_model* model, const char* path, const char* draft) {
  slm_estimate_options options;
  slm_memory alone, both;
  slm_model_info info;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.context = 128;
  alone.size = both.size = sizeof alone;
  info.size = sizeof info;
  CHECK_OK(slm_estimate(path, &options, &alone));
  CHECK_OK(slm_model_get_info(model, &info));
  CHECK(alone.step_bytes == (uint64_t)info.step_bytes && alone.weights > alone.mapped && alone.cache > 0);
  options.draft = draft;
  options.sequences = 2;
  CHECK_OK(slm_estimate(path, &options, &both));
  CHECK(both.weights > alone.weights && both.cache > 2 * alone.cache);
  CHECK_FAILS(slm_estimate("/nowhere", NULL, &both), SLM_ERROR_FAILED, "checkpoint.no-folder");
  options.draft_bits = 3;
  CHECK_FAILS(slm_estimate(path, &options, &both), SLM_ERROR_FAILED, "model.bits");
}

static void test_adapter(const char* root) {
  static const slm_token prompt[] = {1, 5, 7, 11};
  char path[1000], folder[1000];
  slm_token expected[MOST];
  size_t expected_count;
  slm_model* model = NULL;
  slm_adapter* adapter = NULL;
  slm_generator* generator = NULL;
  slm_request request = request_for(prompt, 4);
  answer found = {{0}, 0, 0, 0, 0};
  snprintf(path, sizeof path, "%s/tests/fixtures/models/llama-mha3h", root);
  snprintf(folder, sizeof folder, "%s/tests/fixtures/adapters/llama-mha3h", root);
  expected_count = expected_answer(path, folder, NULL, prompt, 4, 0, expected, MOST);
  CHECK_OK(slm_model_load(path, NULL, &model));
  CHECK_OK(slm_adapter_load(model, folder, &adapter));
  CHECK_OK(slm_generator_create(model, NULL, &generator));
  request.adapter = adapter;
  CHECK_OK(slm_generate(generator, &request, keep, &found, NULL));
  check_same(&found, expected, expected_count);
  slm_model_free(model);
  slm_adapter_free(adapter);
  slm_generator_free(generator);
}

int main(int argc, char** argv) {
  char target_path[1000], draft_path[1000];
  slm_model *target = NULL, *draft = NULL;
  slm_tokenizer* tokenizer = NULL;
  slm_token* prompt = NULL;
  size_t count = 0;
  slm_load_options options;
  int calls = 0;
  if (argc != 2) return 2;
  CHECK(slm_abi() == SLM_ABI && strlen(slm_version()) >= 5);
  snprintf(target_path, sizeof target_path, "%s/examples/demo_pair/target", argv[1]);
  snprintf(draft_path, sizeof draft_path, "%s/examples/demo_pair/draft", argv[1]);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.context = 256;
  options.progress = count_progress;
  options.user = &calls;
  CHECK_OK(slm_model_load(target_path, NULL, &target));
  CHECK_OK(slm_model_load(draft_path, &options, &draft));
  CHECK(calls > 0);
  CHECK_OK(slm_tokenizer_load(target_path, &tokenizer));
  test_texts(tokenizer, target_path, &prompt, &count);
  test_template(target_path);
  test_generator(target, draft, target_path, tokenizer, prompt, count);
  test_rows(target, target_path, prompt, count);
  test_executor(target_path, prompt, count);
  test_engine(target, target_path, prompt, count);
  test_estimate(target, target_path, draft_path);
  test_adapter(argv[1]);
  test_hostile_arguments(target_path);
  slm_free(prompt);
  slm_tokenizer_free(tokenizer);
  slm_model_free(draft);
  slm_model_free(target);
  printf("all checks passed\n");
  return 0;
}
