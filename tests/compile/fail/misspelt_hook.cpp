// A drafter must have all hooks: a misspelt one would never be called.
// expect: the draft must be a LanguageModel or have start(), rewind() and propose()
#include "slm/speculative.hpp"

struct Source {
  void start(std::span<const slm::Token>) {}
#ifdef SLM_FIXED
  void rewind(int) {}
#else
  void rewindTo(int) {}
#endif
  void propose(std::span<const slm::Token>, int, std::vector<slm::Token>&) {}
};

void decode(const slm::AnyModel& target) { slm::SpeculativeDecoder decoder{Source{}, target}; }
