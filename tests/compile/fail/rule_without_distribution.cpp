// The ratio test needs the draft's distribution, and prompt lookup has none.
// expect: this verification rule needs the draft's distribution
#include "slm/decode/speculative.hpp"

struct Model {
  slm::ModelInfo facts;
  const slm::ModelInfo& info() const { return facts; }
  int length() const { return 0; }
  slm::View<const float, 2> extend(std::span<const slm::Token>, int) { return {}; }
  void truncate(int) {}
};

int main() {
#ifdef SLM_FIXED
  slm::SpeculativeDecoder decoder{slm::NgramDrafter{}, Model{}, {}, slm::rule::Match{}};
#else
  slm::SpeculativeDecoder decoder{slm::NgramDrafter{}, Model{}, {}, slm::rule::Ratio{}};
#endif
}
