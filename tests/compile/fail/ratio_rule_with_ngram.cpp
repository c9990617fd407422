// The ratio test needs the draft's distribution; a look-up in the text has none.
// expect: this verification rule needs the draft's distribution
#include "slm/speculative.hpp"

#ifdef SLM_FIXED
using Rule = slm::rule::Match;
#else
using Rule = slm::rule::Ratio;
#endif

template class slm::SpeculativeDecoder<slm::NgramDrafter, slm::AnyModel, Rule>;
