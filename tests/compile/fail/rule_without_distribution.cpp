// The ratio test needs the draft's distribution, and prompt lookup has none.
// expect: this verification rule needs the draft's distribution
#include "slm/decode/speculative.hpp"

struct Model {
  slm::ModelInfo facts;
  const slm::ModelInfo& info() const { return facts; }
  slm::KvPool pool(slm::KvPoolOptions) const { return {}; }
  slm::Sequence sequence() const { return slm::Sequence(); }
  void forward(slm::Batch&) const {}
};

int main() {
#ifdef SLM_FIXED
  slm::SpeculativeDecoder decoder{slm::NgramDrafter{}, Model{}, {}, slm::rule::Match{}};
#else
  slm::SpeculativeDecoder decoder{slm::NgramDrafter{}, Model{}, {}, slm::rule::Ratio{}};
#endif
}
