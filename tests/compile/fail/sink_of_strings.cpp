// A sink takes tokens.
// expect: the sink must be callable with a slm::Token or a const slm::GeneratedToken&
#include "slm/speculative.hpp"

slm::Stats run(slm::AutoregressiveDecoder<>& decoder, std::span<const slm::Token> prompt) {
#ifdef SLM_FIXED
  return decoder.generate(prompt, {}, [](slm::Token) {});
#else
  return decoder.generate(prompt, {}, [](const std::string&) {});
#endif
}
