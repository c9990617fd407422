// SLM_CLONES: compiles a function for several instruction sets, of which the loader selects one where the system can.
#pragma once

#if defined(__x86_64__) && !defined(__clang__) && !defined(_WIN32)
#define SLM_CLONES(...) __attribute__((target_clones(__VA_ARGS__)))
#else
#define SLM_CLONES(...)
#endif
