// The vocabularies of a static pair are compared at compile time.
// expect: the vocabularies of draft and target differ by more than 256 ids
#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/model/model.hpp"
#include "slm/speculative.hpp"

#ifdef SLM_FIXED
using DraftConfig = slm::configs::AmdLlama_135M;  // 32000 ids beside 32016: one tokenizer
#else
using DraftConfig = slm::configs::SmolLM2_135M;
#endif

using Draft = slm::Model<DraftConfig, slm::Bf16, slm::backend::Reference>;
using Target = slm::Model<slm::configs::CodeLlama_7B, slm::Bf16, slm::backend::Reference>;

void decode(const Draft& draft, const Target& target) { slm::SpeculativeDecoder decoder{draft, target}; }
