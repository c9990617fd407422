/* What the C++ interface computes, for comparison. Each function returns the number of results, 0 after an error. */
#ifndef SLM_TESTS_EXPECTED_H
#define SLM_TESTS_EXPECTED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

size_t expected_tokens(const char* model, const char* text, int32_t* out, size_t most);
/* schema and adapter may be NULL. */
size_t expected_answer(const char* model, const char* adapter, const char* schema, const int32_t* prompt, size_t count,
                       float temperature, int32_t* out, size_t most);
size_t expected_logits(const char* model, const int32_t* tokens, size_t count, float* out, size_t most);
size_t expected_embedding(const char* model, const int32_t* tokens, size_t count, float* out, size_t most);

#ifdef __cplusplus
}
#endif

#endif
