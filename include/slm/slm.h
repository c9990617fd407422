/* The C interface of slm (C99): library libslm, CMake target slm_c. docs/embedding.md describes its use.
 *
 * Status. Every function that can fail returns SLM_OK or an error. After an error, slm_error_id() and
 * slm_error_message() describe it. No C++ exception leaves the library, and the library does not end the process.
 * After an error no handle and no array was made.
 *
 * Ownership. A function with the parameter `slm_X** out` makes a handle; slm_X_free() releases it, and accepts NULL.
 * Handles keep what they were made from: they may be released in any order. A function with the parameters
 * `slm_token** out`, `float** out` or `char** out` makes an array; slm_free() releases it. Pointers in structs that
 * the library passes, and those of slm_stream_push() and slm_session_forward(), belong to the library and are valid
 * until the next call with the same handle.
 *
 * Threads. Models, tokenizers, templates, constraints and adapters are immutable: any number of threads may use them.
 * Generators, sessions, streams and answers: one thread at a time for each handle. Functions that any thread may call
 * at any time: slm_generator_cancel, slm_engine_submit, slm_engine_stop, slm_answer_cancel. One thread at a time may
 * be in slm_engine_step, slm_engine_step_for or slm_engine_run. No thread may use a handle while another one releases
 * it. Callbacks run in the thread that called the library, except `wake`, which runs in the thread of the engine.
 *
 * Structs. The member `size` is sizeof the struct; all other members may be zero, which means the default. Later
 * versions append members. A struct of an older header is accepted; a longer one only if the members that this library
 * does not know are zero. Names of functions, values of enumerators, and the order and type of members do not change
 * while SLM_ABI stays the same. Texts are UTF-8. Texts with a size may contain zero bytes; others end with one.
 */
#ifndef SLM_SLM_H
#define SLM_SLM_H

#include <stddef.h>
#include <stdint.h>

#ifndef SLM_API
#define SLM_API /* The build of libslm defines it to export the functions. */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the binary interface. A program checks slm_abi() == SLM_ABI if it loads the library at run time. */
#define SLM_ABI 1

typedef int32_t slm_token;
typedef int32_t slm_status;

enum {
  SLM_OK = 0,
  SLM_ERROR_ARGUMENT = 1,  /* an argument of this call: a null pointer, the size of a struct, an unknown value */
  SLM_ERROR_FAILED = 2,    /* see slm_error_id(): a file, a request, a limit, the device */
  SLM_ERROR_MEMORY = 3,    /* an allocation failed */
  SLM_ERROR_UNEXPECTED = 4 /* any other exception */
};

typedef struct slm_model slm_model;
typedef struct slm_tokenizer slm_tokenizer;
typedef struct slm_template slm_template;
typedef struct slm_stream slm_stream;
typedef struct slm_constraint slm_constraint;
typedef struct slm_adapter slm_adapter;
typedef struct slm_session slm_session;
typedef struct slm_generator slm_generator;
typedef struct slm_engine slm_engine;
typedef struct slm_answer slm_answer;

/* ---- the library ---- */

SLM_API int32_t slm_abi(void);
SLM_API const char* slm_version(void); /* such as "0.1.0" */

/* The last error of this thread. id: stable, listed in docs/errors.md, such as "io.unreadable". message: what was
 * expected and found, and a remedy; it may change. Both are valid until the next error of the thread. */
SLM_API const char* slm_error_id(void);
SLM_API const char* slm_error_message(void);

SLM_API void slm_free(void* array);

/* ---- models ---- */

enum { SLM_KV_DEFAULT = 0, SLM_KV_F32 = 1, SLM_KV_F16 = 2, SLM_KV_BF16 = 3, SLM_KV_INT8 = 4 };

/* Threads of the application that compute the steps of a model. `run` calls part(loop, i) once for each i from 0 to
 * parts - 1, in any order and on any threads, and returns after all calls have ended: 0, or non-zero after an error,
 * when no call runs any more. `loop` is passed on. No part waits for another one. A thread that waits in `run` must not
 * use the same model. Several models may call `run` at the same time. */
typedef struct slm_executor {
  size_t size;
  int32_t threads;  /* how many parts may run at the same time: 1 to 1024 */
  int32_t reserved; /* 0 */
  int (*run)(void* user, int32_t parts, void (*part)(void* loop, int32_t index), void* loop);
  void* user;
} slm_executor;

typedef struct slm_load_options {
  size_t size;
  int32_t context;      /* maximum tokens of a sequence; 0: the checkpoint's limit */
  int32_t cache_format; /* SLM_KV_... */
  int32_t threads;      /* 0: one pool for all such models, with a thread per usable core; else a pool of this model */
  int32_t head_tokens;  /* of a draft model: only the tokens with the lowest ids get logits; 0: all */
  int32_t bits;         /* of a draft model: weights are rounded to 4 or 8 bits; 0: as stored */
  int32_t reserved;     /* 0 */
  int (*progress)(void* user, double share); /* share: 0 to 1; non-zero ends the loading: "c.cancelled" */
  void* user;
  const slm_executor* executor; /* NULL: the library's own threads. With one, threads limits its parts. Copied */
} slm_load_options;

typedef struct slm_model_info {
  size_t size;
  int32_t vocab;    /* width of a row of logits */
  int32_t context;  /* maximum tokens of a sequence */
  int32_t headless; /* 1: the model has no logits, only hidden states */
  int32_t reserved;
  int64_t step_bytes; /* bytes of weights that one step reads; 0: unknown */
} slm_model_info;

/* path: a Hugging Face folder or a GGUF file. options may be NULL. */
SLM_API slm_status slm_model_load(const char* path, const slm_load_options* options, slm_model** out);
SLM_API slm_status slm_model_get_info(const slm_model* model, slm_model_info* info);
SLM_API void slm_model_free(slm_model* model);

typedef struct slm_estimate_options {
  size_t size;
  const char* draft;         /* the path of a draft model; NULL: none */
  int32_t context;           /* tokens of each sequence; 0: the model's limit */
  int32_t sequences;         /* at the same time; 0: 1 */
  int32_t cache_format;      /* SLM_KV_... */
  int32_t draft_head_tokens; /* see slm_load_options */
  int32_t draft_bits;
  int32_t reserved;
} slm_estimate_options;

/* Bytes; with a draft model, of both. The total is weights + cache + scratch. */
typedef struct slm_memory {
  size_t size;
  uint64_t weights;
  uint64_t mapped; /* the part of the weights that is read in the mapped files */
  uint64_t cache;
  uint64_t scratch;
  uint64_t step_bytes; /* see slm_model_info */
} slm_memory;

/* The memory of a model on the CPU, from the headers of its files. options may be NULL. */
SLM_API slm_status slm_estimate(const char* path, const slm_estimate_options* options, slm_memory* memory);

/* A LoRA adapter in PEFT's format, for this model. */
SLM_API slm_status slm_adapter_load(const slm_model* model, const char* folder, slm_adapter** out);
SLM_API void slm_adapter_free(slm_adapter* adapter);

/* ---- text ---- */

SLM_API slm_status slm_tokenizer_load(const char* path, slm_tokenizer** out); /* the path of a model */
SLM_API slm_status slm_tokenizer_vocab(const slm_tokenizer* tokenizer, int32_t* vocab);
SLM_API slm_status slm_tokenizer_encode(const slm_tokenizer* tokenizer, const char* text, size_t size,
                                        int32_t add_special_tokens, slm_token** out, size_t* count);
/* *text ends with a zero byte behind its *size bytes. */
SLM_API slm_status slm_tokenizer_decode(const slm_tokenizer* tokenizer, const slm_token* tokens, size_t count,
                                        int32_t skip_special_tokens, char** out, size_t* size);
SLM_API void slm_tokenizer_free(slm_tokenizer* tokenizer);

typedef struct slm_template_options {
  size_t size;
  const char* tools;               /* a JSON list; NULL: none */
  const char* documents;           /* a JSON list; NULL: none */
  const char* variables;           /* a JSON object, such as {"enable_thinking": false}; NULL: none */
  int32_t no_generation_prompt;    /* 1: the text ends with the last message */
  int32_t continue_final_message;  /* 1: the answer continues the last message */
} slm_template_options;

/* choice: a file, or the name of a template; NULL: the model's own. */
SLM_API slm_status slm_template_load(const char* model_path, const char* choice, slm_template** out);
/* messages: a JSON list such as [{"role": "user", "content": "Hi"}]. options may be NULL. No message can write a
 * control token. */
SLM_API slm_status slm_template_encode(const slm_template* chat, const slm_tokenizer* tokenizer, const char* messages,
                                       const slm_template_options* options, slm_token** out, size_t* count);
SLM_API slm_status slm_template_render(const slm_template* chat, const char* messages,
                                       const slm_template_options* options, char** out, size_t* size);
/* Tokens that end an answer, for slm_request. A stream made with the template finds its stop strings. */
SLM_API slm_status slm_template_stop_tokens(const slm_template* chat, const slm_tokenizer* tokenizer, slm_token** out,
                                            size_t* count);
SLM_API void slm_template_free(slm_template* chat);

/* A stream turns the tokens of one answer into text, in whole characters, up to a stop string. prompt: the tokens
 * before the answer. chat may be NULL. */
SLM_API slm_status slm_stream_create(const slm_tokenizer* tokenizer, const slm_template* chat, const slm_token* prompt,
                                     size_t prompt_count, const char* const* stops, size_t stop_count,
                                     slm_stream** out);
/* *text, *size: the text that the token adds; may be empty. *stopped: 1 after a stop string. */
SLM_API slm_status slm_stream_push(slm_stream* stream, slm_token token, const char** text, size_t* size,
                                   int32_t* stopped);
/* The rest of the text, after the last token. */
SLM_API slm_status slm_stream_finish(slm_stream* stream, const char** text, size_t* size);
SLM_API void slm_stream_free(slm_stream* stream);

/* ---- structured output ---- */

enum {
  SLM_CONSTRAINT_JSON_SCHEMA = 1, /* text: a JSON schema */
  SLM_CONSTRAINT_JSON = 2,        /* any JSON object; no text */
  SLM_CONSTRAINT_REGEX = 3,       /* text: a regular expression that the whole answer matches */
  SLM_CONSTRAINT_GBNF = 4         /* text: a grammar in llama.cpp's syntax */
};

/* tokenizer: of the model that answers. */
SLM_API slm_status slm_constraint_create(const slm_tokenizer* tokenizer, int32_t kind, const char* text, size_t size,
                                         slm_constraint** out);
SLM_API slm_status slm_constraint_choice(const slm_tokenizer* tokenizer, const char* const* texts, size_t count,
                                         slm_constraint** out);
SLM_API void slm_constraint_free(slm_constraint* constraint);

/* ---- requests ---- */

enum { SLM_POOLING_NONE = 0, SLM_POOLING_MEAN = 1, SLM_POOLING_LAST = 2 };

typedef struct slm_request {
  size_t size;
  const slm_token* prompt; /* read during the call only, like all arrays of the request */
  size_t prompt_count;
  const slm_token* stop_tokens; /* besides the model's own end tokens */
  size_t stop_count;
  const slm_constraint* constraint;
  const slm_adapter* adapter;       /* of the model */
  const slm_adapter* draft_adapter; /* of the draft model */
  uint64_t seed;
  uint64_t tenant;          /* prompts share cache pages with prompts of the same tenant only */
  int32_t max_new_tokens;   /* 0: 128 */
  float temperature;        /* 0: the most likely token */
  int32_t top_k;            /* 0: all */
  float top_p;              /* 0 or 1: all */
  float min_p;              /* 0: all */
  float repetition_penalty; /* 0 or 1: none */
  float presence_penalty;
  float frequency_penalty;
  int32_t ignore_end_tokens; /* 1: continue after the model's end tokens */
  int32_t logprobs;          /* 1: log-probabilities of the model's own distribution */
  int32_t top_logprobs;      /* number of alternatives */
  int32_t pooling;           /* SLM_POOLING_...; not NONE: embed the prompt, generate nothing */
} slm_request;

/* Sets the sampling members that the checkpoint recommends. */
SLM_API slm_status slm_request_recommended(const slm_model* model, slm_request* request);

typedef struct slm_logprob {
  slm_token token;
  int32_t reserved;
  double logprob;
} slm_logprob;

typedef struct slm_generated {
  size_t size;
  slm_token token;
  int32_t drafted;  /* 1: proposed by a draft */
  int64_t position; /* index in the text, prompt included */
  double logprob;   /* NaN if not requested */
  const slm_logprob* top;
  size_t top_count;
} slm_generated;

enum {
  SLM_FINISH_END_TOKEN = 0,
  SLM_FINISH_STOP_TOKEN = 1,
  SLM_FINISH_CALLBACK = 2, /* the callback returned non-zero */
  SLM_FINISH_LENGTH = 3,
  SLM_FINISH_CONTEXT = 4,
  SLM_FINISH_CANCELLED = 5,
  SLM_FINISH_DEADLINE = 6,
  SLM_FINISH_ERROR = 7,
  SLM_FINISH_COMPLETE = 8 /* the constraint permits nothing more */
};

typedef struct slm_stats {
  size_t size;
  int32_t finish_reason;
  int32_t reserved;
  int64_t prompt_tokens;
  int64_t reused_tokens; /* of the prompt, found in the cache */
  int64_t new_tokens;
  int64_t steps; /* forward passes of the model after the prompt */
  int64_t drafted;
  int64_t accepted;
  double prompt_seconds;
  double total_seconds;
} slm_stats;

/* The sources of drafts. The text does not depend on them. */
typedef struct slm_drafting {
  size_t size;
  const slm_model* model; /* a draft model; NULL: none */
  int32_t no_lookup;      /* 1: do not draft from the text so far */
  int32_t no_forced_text; /* 1: do not draft what a constraint forces */
  int32_t draft_tokens;   /* 0: adaptive; else a fixed number */
  int32_t reserved;
} slm_drafting;

/* ---- one text at a time ---- */

/* drafting may be NULL. Keys and values stay in the cache between calls. */
SLM_API slm_status slm_generator_create(const slm_model* model, const slm_drafting* drafting, slm_generator** out);

/* Non-zero ends the generation: SLM_FINISH_CALLBACK. */
typedef int (*slm_on_token)(void* user, const slm_generated* token);

/* on_token and stats may be NULL. */
SLM_API slm_status slm_generate(slm_generator* generator, const slm_request* request, slm_on_token on_token,
                                void* user, slm_stats* stats);
/* Ends the generation in progress before its next step, also during the prompt. Any thread may call it. */
SLM_API slm_status slm_generator_cancel(slm_generator* generator);
SLM_API void slm_generator_free(slm_generator* generator);

/* The embedding of a text; pooling: not NONE. */
SLM_API slm_status slm_embed(const slm_model* model, const slm_token* tokens, size_t count, int32_t pooling,
                             float** out, size_t* width);

/* ---- rows of a text ---- */

enum { SLM_ROWS_NOTHING = 0, SLM_ROWS_LOGITS = 1, SLM_ROWS_HIDDEN = 2 };

SLM_API slm_status slm_session_create(const slm_model* model, slm_session** out);
/* Appends tokens. *values: the logits, or the final hidden states, of the last `rows` tokens: [rows][*width]. */
SLM_API slm_status slm_session_forward(slm_session* session, const slm_token* tokens, size_t count, int32_t kind,
                                       size_t rows, const float** values, size_t* width);
SLM_API slm_status slm_session_length(const slm_session* session, size_t* length);
SLM_API slm_status slm_session_truncate(slm_session* session, size_t length);
SLM_API void slm_session_free(slm_session* session);

/* ---- many requests at a time ---- */

typedef struct slm_engine_options {
  size_t size;
  const slm_drafting* drafting; /* NULL: the default */
  uint64_t cache_memory;        /* bytes of keys and values; 0: half of the free memory */
  size_t max_requests;          /* queued and running; 0: 12800 */
  size_t max_running;           /* 0: 64 */
  size_t max_unread;            /* unread tokens of an answer, at which it pauses; 0: 4096 */
  double step_seconds;          /* target for the duration of a step; 0: 0.1 */
  int32_t no_shared_prefixes;   /* 1: prompts with a common prefix compute it each */
  int32_t reserved;
} slm_engine_options;

typedef struct slm_scheduling {
  size_t size;
  int32_t priority;    /* lower values start first */
  int32_t reserved;
  double seconds;      /* the answer ends after this time; 0: no limit */
  void (*wake)(void* user); /* results are available; it must be short and call no function of slm */
  void* user;
} slm_scheduling;

/* options may be NULL. */
SLM_API slm_status slm_engine_create(const slm_model* model, const slm_engine_options* options, slm_engine** out);
/* scheduling may be NULL. Releasing the answer cancels the request. */
SLM_API slm_status slm_engine_submit(slm_engine* engine, const slm_request* request, const slm_scheduling* scheduling,
                                     slm_answer** out);
/* One round of all running requests. *busy: 0 if there was nothing to do. An error ends all requests. */
SLM_API slm_status slm_engine_step(slm_engine* engine, int32_t* busy);
/* The same for an application's own loop: steps while a further one as long as the last ends within `seconds`, and at
 * least once. Prompts are cut so that a step fits; a step cannot be interrupted. */
SLM_API slm_status slm_engine_step_for(slm_engine* engine, double seconds, int32_t* busy);
/* Steps and waits for requests until slm_engine_stop(), which cancels all requests. */
SLM_API slm_status slm_engine_run(slm_engine* engine);
SLM_API slm_status slm_engine_stop(slm_engine* engine);
/* No thread may be in step or run. Ends all requests; answers can still be read. */
SLM_API void slm_engine_free(slm_engine* engine);

enum { SLM_ANSWER_PENDING = 0, SLM_ANSWER_TOKEN = 1, SLM_ANSWER_ENDED = 2 };

/* *state: SLM_ANSWER_TOKEN if *token was set. Returns the error that ended the request. */
SLM_API slm_status slm_answer_poll(slm_answer* answer, slm_generated* token, int32_t* state);
/* The same, but waits: never SLM_ANSWER_PENDING. Another thread must step the engine. */
SLM_API slm_status slm_answer_wait(slm_answer* answer, slm_generated* token, int32_t* state);
/* Valid after the end. */
SLM_API slm_status slm_answer_stats(const slm_answer* answer, slm_stats* stats);
SLM_API slm_status slm_answer_embedding(const slm_answer* answer, float** out, size_t* width);
SLM_API slm_status slm_answer_cancel(slm_answer* answer);
SLM_API void slm_answer_free(slm_answer* answer);

#ifdef __cplusplus
}
#endif

#endif
