/* Checks of the C interface's tests. */
#ifndef SLM_TESTS_CHECK_H
#define SLM_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slm/slm.h"

#define CHECK(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, slm_error_message()); \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

#define CHECK_OK(call) CHECK((call) == SLM_OK)

/* The call fails with this status and id. */
#define CHECK_FAILS(call, status, id) CHECK((call) == (status) && strcmp(slm_error_id(), (id)) == 0)

void test_hostile_arguments(const char* target);

#endif
