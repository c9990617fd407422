/* Answers several prompts at the same time: each pass of the loop runs one step of the model and reads what is new.
 *   example-c-batch <model> <prompt>... */
#include <slm/slm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, NEW_TOKENS = 32 };

static void must(slm_status status) {
  if (status == SLM_OK) return;
  fprintf(stderr, "%s\n", slm_error_message());
  exit(1);
}

int main(int argc, char** argv) {
  slm_model* model = NULL;
  slm_tokenizer* tokenizer = NULL;
  slm_engine* engine = NULL;
  slm_answer* answers[MOST] = {NULL};
  slm_token tokens[MOST][NEW_TOKENS];
  size_t counts[MOST] = {0};
  const int asked = argc - 2;
  int i, ended = 0;
  if (asked < 1 || asked > MOST) {
    fprintf(stderr, "usage: batch <model> <prompt>...\n");
    return 1;
  }
  must(slm_model_load(argv[1], NULL, &model));
  must(slm_tokenizer_load(argv[1], &tokenizer));
  must(slm_engine_create(model, NULL, &engine));
  for (i = 0; i < asked; ++i) {
    slm_request request = {sizeof request};
    slm_token* prompt = NULL;
    must(slm_tokenizer_encode(tokenizer, argv[i + 2], strlen(argv[i + 2]), 1, &prompt, &request.prompt_count));
    request.prompt = prompt;
    request.max_new_tokens = NEW_TOKENS;
    must(slm_engine_submit(engine, &request, NULL, &answers[i]));
    slm_free(prompt);
  }

  while (ended < asked) {
    int32_t busy, state;
    must(slm_engine_step(engine, &busy)); /* an application computes or draws between two steps */
    for (i = 0; i < asked; ++i) {
      if (answers[i] == NULL) continue;
      slm_generated token = {sizeof token};
      must(slm_answer_poll(answers[i], &token, &state));
      for (; state == SLM_ANSWER_TOKEN; must(slm_answer_poll(answers[i], &token, &state))) {
        tokens[i][counts[i]++] = token.token;
      }
      if (state == SLM_ANSWER_ENDED) {
        char* text = NULL;
        size_t size;
        must(slm_tokenizer_decode(tokenizer, tokens[i], counts[i], 1, &text, &size));
        printf("%s%s\n---\n", argv[i + 2], text);
        slm_free(text);
        slm_answer_free(answers[i]);
        answers[i] = NULL;
        ++ended;
      }
    }
  }
  slm_engine_free(engine);
  slm_tokenizer_free(tokenizer);
  slm_model_free(model);
  return 0;
}
