// A draft must be a model or have start(), rewind() and propose().
// expect: the draft must be a LanguageModel or have start(), rewind() and propose()
#include "slm/decode/speculative.hpp"

struct Model {
  slm::ModelInfo facts;
  const slm::ModelInfo& info() const { return facts; }
  slm::KvPool pool(slm::KvPoolOptions) const { return {}; }
  slm::Sequence sequence() const { return slm::Sequence(); }
  void forward(slm::Batch&) const {}
};

#ifdef SLM_FIXED
using Draft = Model;
#else
struct Draft {
  void guess(std::span<const slm::Token>) {}
};
#endif

int main() { slm::SpeculativeDecoder decoder{Draft{}, Model{}}; }
