// An external program: prints the version of slm, and the ids of a text.
#include <iostream>
#include <slm/core/macros.hpp>
#include <slm/text/tokenizer.hpp>

int main(int, char** arguments) {
  std::cout << SLM_VERSION_MAJOR << '.' << SLM_VERSION_MINOR << '.' << SLM_VERSION_PATCH << ':';
  for (const slm::Token id : slm::Tokenizer::from(arguments[1]).encode(arguments[2])) std::cout << ' ' << id;
  std::cout << '\n';
}
