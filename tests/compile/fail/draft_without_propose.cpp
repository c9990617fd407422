// A draft is a language model or proposes tokens; the compiler rejects anything else with a clear message.
// expect: the draft must be a LanguageModel or have start(), rewind() and propose()
#include "slm/speculative.hpp"

struct Source {
  void start(std::span<const slm::Token>) {}
  void rewind(int) {}
#ifdef SLM_FIXED
  void propose(std::span<const slm::Token>, int, std::vector<slm::Token>&) {}
#endif
};

void decode(const slm::AnyModel& target) { slm::SpeculativeDecoder decoder{Source{}, target}; }
