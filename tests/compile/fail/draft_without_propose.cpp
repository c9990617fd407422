// A draft is a language model or proposes tokens; the compiler rejects anything else with a clear message.
// expect: the draft must be a LanguageModel or have start(), rewind() and propose()
#include "slm/speculative.hpp"

struct Drafter {
  void start(std::span<const slm::Token>) {}
  void rewind(int) {}
#ifdef SLM_FIXED
  void propose(std::span<const slm::Token>, int, std::vector<slm::Token>&) {}
#endif
};

template class slm::SpeculativeDecoder<Drafter, slm::AnyModel>;
