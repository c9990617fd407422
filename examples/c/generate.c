/* Continues a prompt with the C interface, and prints the text while it is generated.
 *   example-c-generate <model> <prompt> [<draft-model>] */
#include <slm/slm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(slm_status status) {
  if (status == SLM_OK) return;
  fprintf(stderr, "%s\n", slm_error_message());
  exit(1);
}

static int print(void* stream, const slm_generated* token) {
  const char* text;
  size_t size;
  int32_t stopped;
  if (slm_stream_push(stream, token->token, &text, &size, &stopped) != SLM_OK) return 1;
  fwrite(text, 1, size, stdout);
  fflush(stdout);
  return stopped;
}

int main(int argc, char** argv) {
  slm_model *model = NULL, *draft = NULL;
  slm_tokenizer* tokenizer = NULL;
  slm_generator* generator = NULL;
  slm_stream* stream = NULL;
  slm_token* prompt = NULL;
  const char* rest;
  size_t count, size;
  slm_drafting drafting = {sizeof drafting};
  slm_request request = {sizeof request};
  slm_stats stats = {sizeof stats};
  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: generate <model> <prompt> [<draft-model>]\n");
    return 1;
  }
  must(slm_model_load(argv[1], NULL, &model));
  must(slm_tokenizer_load(argv[1], &tokenizer));
  if (argc == 4) must(slm_model_load(argv[3], NULL, &draft));
  must(slm_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), 1, &prompt, &count));

  drafting.model = draft;
  must(slm_generator_create(model, &drafting, &generator));
  must(slm_stream_create(tokenizer, NULL, prompt, count, NULL, 0, &stream));
  request.prompt = prompt;
  request.prompt_count = count;
  request.max_new_tokens = 48;
  printf("%s", argv[2]);
  must(slm_generate(generator, &request, print, stream, &stats));
  must(slm_stream_finish(stream, &rest, &size));
  fwrite(rest, 1, size, stdout);
  printf("\n--- %d tokens in %d steps\n", (int)stats.new_tokens, (int)stats.steps);

  slm_free(prompt);
  slm_stream_free(stream);
  slm_generator_free(generator);
  slm_tokenizer_free(tokenizer);
  slm_model_free(draft);
  slm_model_free(model);
  return 0;
}
