// A program reads at least one format.
// expect: SLM_NO_GGUF and SLM_NO_FOLDERS leave no model to read
#define SLM_NO_GGUF
#ifndef SLM_FIXED
#define SLM_NO_FOLDERS
#endif
#include "slm/core/macros.hpp"
