/* Wrong arguments return codes: null pointers, structs of other sizes, unknown values, bad paths. */
#include <stddef.h>
#include <stdint.h>

#include "check.h"

static int stop_loading(void* user, double share) {
  (void)user;
  (void)share;
  return 1;
}

typedef struct reentry {
  slm_generator* generator;
  const slm_request* request;
  slm_status status;
} reentry;

static int generate_again(void* user, const slm_generated* token) {
  reentry* again = user;
  (void)token;
  again->status = slm_generate(again->generator, again->request, NULL, NULL, NULL);
  return 1;
}

static int cancel(void* user, const slm_generated* token) {
  (void)token;
  return slm_generator_cancel(user) != SLM_OK;
}

/* A struct that grows keeps the members of its first version. Then the library accepts this size as its oldest:
 * the second argument of read_struct() in tools/c_api. */
static void test_sizes(void) {
  if (sizeof(void*) != 8) return;
  CHECK(sizeof(slm_load_options) == 56 && sizeof(slm_model_info) == 32 && sizeof(slm_template_options) == 40);
  CHECK(sizeof(slm_request) == 128 && sizeof(slm_logprob) == 16 && sizeof(slm_generated) == 48);
  CHECK(sizeof(slm_stats) == 80 && sizeof(slm_drafting) == 32 && sizeof(slm_engine_options) == 64);
  CHECK(sizeof(slm_executor) == 32 && offsetof(slm_load_options, executor) == 48);
  CHECK(sizeof(slm_scheduling) == 40 && sizeof(slm_estimate_options) == 40 && sizeof(slm_memory) == 48);
}

static int run_nothing(void* user, int32_t parts, void (*part)(void* loop, int32_t index), void* loop) {
  (void)user;
  (void)parts;
  (void)part;
  (void)loop;
  return 3;
}

static void test_executors(const char* target) {
  static const slm_token tokens[] = {1, 2, 3};
  slm_load_options options;
  slm_executor executor;
  slm_model* model = NULL;
  slm_session* session = NULL;
  const float* values = NULL;
  size_t width = 0;
  memset(&options, 0, sizeof options);
  memset(&executor, 0, sizeof executor);
  options.size = sizeof options;
  options.executor = &executor;
  CHECK_FAILS(slm_model_load(target, &options, &model), SLM_ERROR_ARGUMENT, "c.struct-size");
  executor.size = sizeof executor;
  CHECK_FAILS(slm_model_load(target, &options, &model), SLM_ERROR_ARGUMENT, "c.null");
  executor.run = run_nothing;
  CHECK_FAILS(slm_model_load(target, &options, &model), SLM_ERROR_FAILED, "backend.invalid-threads");
  executor.threads = 4;
  options.size = offsetof(slm_load_options, executor); /* of a program that was compiled before executors */
  CHECK_OK(slm_model_load(target, &options, &model));
  slm_model_free(model);
  options.size = sizeof options;
  CHECK_OK(slm_model_load(target, &options, &model));
  CHECK_OK(slm_session_create(model, &session));
  CHECK_FAILS(slm_session_forward(session, tokens, 3, SLM_ROWS_LOGITS, 1, &values, &width), SLM_ERROR_FAILED,
              "backend.executor");
  slm_session_free(session);
  slm_model_free(model);
}

static void test_structs(const char* target) {
  struct {
    slm_load_options known;
    int64_t unknown;
  } longer;
  slm_model* model = NULL;
  slm_model_info info;
  memset(&longer, 0, sizeof longer);
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_ARGUMENT, "c.struct-size");
  longer.known.size = 4;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_ARGUMENT, "c.struct-size");
  longer.known.size = SIZE_MAX;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_ARGUMENT, "c.struct-size");
  longer.known.size = sizeof longer;
  longer.unknown = 1;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_ARGUMENT, "c.struct-size");
  longer.unknown = 0;
  longer.known.cache_format = 9;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_ARGUMENT, "c.value");
  longer.known.cache_format = 0;
  longer.known.threads = -1;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_FAILED, "backend.invalid-threads");
  longer.known.threads = 0;
  longer.known.progress = stop_loading;
  CHECK_FAILS(slm_model_load(target, &longer.known, &model), SLM_ERROR_FAILED, "c.cancelled");
  longer.known.progress = NULL;
  CHECK(model == NULL);
  CHECK_OK(slm_model_load(target, &longer.known, &model)); /* a longer struct without unknown values */
  info.size = 1;
  CHECK_FAILS(slm_model_get_info(model, &info), SLM_ERROR_ARGUMENT, "c.struct-size");
  info.size = sizeof info;
  CHECK_OK(slm_model_get_info(model, &info));
  CHECK(info.vocab > 0 && info.context > 0 && info.headless == 0);
  slm_model_free(model);
}

static void test_paths(const char* target) {
  slm_model* model = NULL;
  slm_tokenizer* tokenizer = NULL;
  slm_template* chat = NULL;
  char path[1000];
  CHECK_FAILS(slm_model_load(NULL, NULL, &model), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_model_load(target, NULL, NULL), SLM_ERROR_ARGUMENT, "c.null");
  CHECK(slm_model_load("", NULL, &model) == SLM_ERROR_FAILED);
  CHECK(slm_model_load("/nowhere", NULL, &model) == SLM_ERROR_FAILED);
  CHECK(slm_model_load("\xff\xfe", NULL, &model) == SLM_ERROR_FAILED);
  snprintf(path, sizeof path, "%s/config.json", target);
  CHECK(slm_model_load(path, NULL, &model) == SLM_ERROR_FAILED);
  CHECK(slm_tokenizer_load("/nowhere", &tokenizer) == SLM_ERROR_FAILED);
  CHECK(slm_template_load("/nowhere", NULL, &chat) == SLM_ERROR_FAILED);
  CHECK(strlen(slm_error_message()) > 0 && strlen(slm_error_id()) > 0);
  CHECK(model == NULL && tokenizer == NULL && chat == NULL);
}

static void test_requests(const slm_model* model) {
  static const slm_token prompt[] = {1, 2, 3};
  static const slm_token unknown[] = {-1};
  slm_generator* generator = NULL;
  slm_request request;
  slm_stats stats;
  reentry again;
  memset(&request, 0, sizeof request);
  CHECK_OK(slm_generator_create(model, NULL, &generator));
  CHECK_FAILS(slm_generate(generator, NULL, NULL, NULL, NULL), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_generate(NULL, &request, NULL, NULL, NULL), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_ARGUMENT, "c.struct-size");
  request.size = sizeof request;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_FAILED, "decode.empty-prompt");
  request.prompt_count = 3;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_ARGUMENT, "c.null");
  request.prompt = unknown;
  request.prompt_count = 1;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_FAILED, "decode.token-out-of-range");
  request.prompt_count = SIZE_MAX / 2;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_MEMORY, "c.out-of-memory");
  request.prompt = prompt;
  request.prompt_count = 3;
  request.temperature = -1;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_FAILED, "sampling.out-of-range");
  request.temperature = 0;
  request.pooling = 7;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, NULL), SLM_ERROR_ARGUMENT, "c.value");
  request.pooling = 0;
  stats.size = 0;
  CHECK_FAILS(slm_generate(generator, &request, NULL, NULL, &stats), SLM_ERROR_ARGUMENT, "c.struct-size");
  again.generator = generator;
  again.request = &request;
  again.status = SLM_OK;
  CHECK_OK(slm_generate(generator, &request, generate_again, &again, NULL));
  CHECK(again.status == SLM_ERROR_ARGUMENT && strcmp(slm_error_id(), "c.busy") == 0);
  stats.size = sizeof stats;
  request.ignore_end_tokens = 1;
  CHECK_OK(slm_generate(generator, &request, cancel, generator, &stats));
  CHECK(stats.finish_reason == SLM_FINISH_CANCELLED && stats.new_tokens < 128);
  slm_generator_free(generator);
}

static void test_texts(const slm_model* model, const char* target) {
  slm_tokenizer* tokenizer = NULL;
  slm_constraint* constraint = NULL;
  slm_session* session = NULL;
  slm_token* tokens = NULL;
  char* text = NULL;
  float* values = NULL;
  const float* rows = NULL;
  static const slm_token odd[] = {-5, 0, 2000000000};
  const char* const choices[] = {"yes", NULL};
  size_t size = 0;
  CHECK_OK(slm_tokenizer_load(target, &tokenizer));
  CHECK_FAILS(slm_tokenizer_encode(tokenizer, NULL, 3, 1, &tokens, &size), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_tokenizer_encode(tokenizer, "a", 1, 1, NULL, &size), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_OK(slm_tokenizer_encode(tokenizer, "\xff\0x", 3, 1, &tokens, &size)); /* neither UTF-8 nor without zeros */
  slm_free(tokens);
  CHECK_OK(slm_tokenizer_decode(tokenizer, odd, 3, 1, &text, &size));
  slm_free(text);
  CHECK_FAILS(slm_constraint_create(tokenizer, 99, "", 0, &constraint), SLM_ERROR_ARGUMENT, "c.value");
  CHECK(slm_constraint_create(tokenizer, SLM_CONSTRAINT_JSON_SCHEMA, "{", 1, &constraint) == SLM_ERROR_FAILED);
  CHECK(slm_constraint_create(tokenizer, SLM_CONSTRAINT_REGEX, "(", 1, &constraint) == SLM_ERROR_FAILED);
  CHECK_FAILS(slm_constraint_choice(tokenizer, choices, 2, &constraint), SLM_ERROR_ARGUMENT, "c.null");
  CHECK(constraint == NULL);
  CHECK_OK(slm_constraint_choice(tokenizer, choices, 1, &constraint));
  CHECK_OK(slm_session_create(model, &session));
  CHECK_FAILS(slm_session_forward(session, odd, 1, SLM_ROWS_LOGITS, 2, &rows, &size), SLM_ERROR_ARGUMENT, "c.value");
  CHECK_FAILS(slm_session_forward(session, odd, 3, SLM_ROWS_LOGITS, 1, &rows, &size), SLM_ERROR_FAILED,
              "batch.token-out-of-range");
  CHECK_FAILS(slm_session_forward(session, odd, 3, 5, 1, &rows, &size), SLM_ERROR_ARGUMENT, "c.value");
  CHECK_FAILS(slm_embed(model, NULL, 0, SLM_POOLING_MEAN, &values, &size), SLM_ERROR_FAILED, "decode.empty-prompt");
  CHECK_FAILS(slm_embed(model, odd + 1, 1, SLM_POOLING_NONE, &values, &size), SLM_ERROR_ARGUMENT, "c.value");
  slm_session_free(session);
  slm_constraint_free(constraint);
  slm_tokenizer_free(tokenizer);
}

static void test_engines(const slm_model* model) {
  static const slm_token prompt[] = {1, 2, 3};
  slm_engine* engine = NULL;
  slm_answer* answer = NULL;
  slm_engine_options options;
  slm_drafting drafting;
  slm_request request;
  slm_scheduling scheduling;
  slm_generated token;
  int32_t state = 0;
  memset(&options, 0, sizeof options);
  memset(&drafting, 0, sizeof drafting);
  memset(&request, 0, sizeof request);
  memset(&scheduling, 0, sizeof scheduling);
  memset(&token, 0, sizeof token);
  options.size = sizeof options;
  options.drafting = &drafting;
  CHECK_FAILS(slm_engine_create(model, &options, &engine), SLM_ERROR_ARGUMENT, "c.struct-size");
  drafting.size = sizeof drafting;
  drafting.draft_tokens = -3;
  CHECK_FAILS(slm_engine_create(model, &options, &engine), SLM_ERROR_FAILED, "decode.bad-draft-length");
  drafting.draft_tokens = 0;
  options.step_seconds = -1;
  CHECK_FAILS(slm_engine_create(model, &options, &engine), SLM_ERROR_ARGUMENT, "c.value");
  options.step_seconds = 0;
  options.max_requests = 1;
  CHECK_OK(slm_engine_create(model, &options, &engine));
  request.size = sizeof request;
  request.prompt = prompt;
  request.prompt_count = 3;
  scheduling.size = sizeof scheduling;
  scheduling.seconds = -1;
  CHECK_FAILS(slm_engine_submit(engine, &request, &scheduling, &answer), SLM_ERROR_ARGUMENT, "c.value");
  CHECK_FAILS(slm_engine_submit(engine, NULL, NULL, &answer), SLM_ERROR_ARGUMENT, "c.null");
  CHECK(answer == NULL);
  CHECK_OK(slm_engine_submit(engine, &request, NULL, &answer));
  CHECK_FAILS(slm_engine_submit(engine, &request, NULL, &answer), SLM_ERROR_FAILED, "engine.full");
  CHECK_FAILS(slm_answer_poll(answer, &token, &state), SLM_ERROR_ARGUMENT, "c.struct-size");
  token.size = sizeof token;
  CHECK_FAILS(slm_answer_poll(answer, &token, NULL), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_answer_poll(NULL, &token, &state), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_engine_step(engine, NULL), SLM_ERROR_ARGUMENT, "c.null");
  CHECK_FAILS(slm_engine_step_for(engine, -1, &state), SLM_ERROR_ARGUMENT, "c.value");
  CHECK_OK(slm_engine_stop(engine));
  CHECK_OK(slm_engine_run(engine)); /* ends at once: it was stopped before */
  CHECK_OK(slm_answer_wait(answer, &token, &state));
  CHECK(state == SLM_ANSWER_ENDED);
  slm_answer_free(answer);
  slm_engine_free(engine);
}

void test_hostile_arguments(const char* target) {
  slm_model* model = NULL;
  test_sizes();
  test_executors(target);
  test_structs(target);
  test_paths(target);
  CHECK_OK(slm_model_load(target, NULL, &model));
  test_requests(model);
  test_texts(model, target);
  test_engines(model);
  slm_model_free(model);
  slm_model_free(NULL);
  slm_tokenizer_free(NULL);
  slm_template_free(NULL);
  slm_stream_free(NULL);
  slm_constraint_free(NULL);
  slm_adapter_free(NULL);
  slm_session_free(NULL);
  slm_generator_free(NULL);
  slm_engine_free(NULL);
  slm_answer_free(NULL);
  slm_free(NULL);
}
