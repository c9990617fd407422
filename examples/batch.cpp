// Continues many prompts in one batch: every step reads the weights once for all of them. Each text equals the one that
// its prompt produces alone.
//  example-batch <model-folder> <prompt>...
#include <iostream>
#include <slm/speculative.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 3) throw slm::Error("usage: batch <model-folder> <prompt>...");

  slm::DefaultBackend device;
  slm::AutoregressiveDecoder decoder{slm::load(argv[1], device)};
  const auto tokenizer = slm::Tokenizer::from(argv[1]);

  std::vector<slm::Request> requests;
  std::vector<std::vector<slm::Token>> texts;
  for (int i = 2; i < argc; ++i) {
    texts.push_back(tokenizer.encode(argv[i]));
    requests.push_back({.prompt = texts.back(), .sampling = {.max_new_tokens = 32, .temperature = 0}});
  }

  decoder.generate(requests, [&](std::size_t i, const slm::GeneratedToken& next) {
    texts[i].push_back(next.token);
    return true;  // false ends this text only
  });

  for (const auto& text : texts) std::cout << tokenizer.decode(text) << "\n---\n";
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
