// A registry refuses a config whose heads do not divide.
// expect: a registered config has an unsound shape
#include "slm/config/registry.hpp"

struct Odd {
  static constexpr std::string_view name = "Odd";
  static constexpr slm::ModelConfig value{.layers = 1,
                                          .hidden = 64,
                                          .ffn = 64,
                                          .heads = 4,
#ifdef SLM_FIXED
                                          .kv_heads = 2,
#else
                                          .kv_heads = 3,
#endif
                                          .head_dim = 16,
                                          .vocab = 10};
};

slm::Registry<Odd> registry;
