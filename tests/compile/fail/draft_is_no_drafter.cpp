// A draft must be a model or have propose().
// expect: the draft must be a LanguageModel or have propose()
#include "slm/decode/speculative.hpp"

struct Model {
  slm::ModelInfo facts;
  const slm::ModelInfo& info() const { return facts; }
  int length() const { return 0; }
  slm::View<const float, 2> extend(std::span<const slm::Token>, int) { return {}; }
  void truncate(int) {}
};

#ifdef SLM_FIXED
using Draft = Model;
#else
struct Draft {
  void guess(std::span<const slm::Token>) {}
};
#endif

int main() { slm::SpeculativeDecoder decoder{Draft{}, Model{}}; }
