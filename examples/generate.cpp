// Continues a prompt with two model folders: a small draft proposes tokens, the target verifies them.
//  example-generate <draft-folder> <target-folder> <prompt>
#include <iostream>
#include <slm/speculative.hpp>

int main(int argc, char** argv) try {
  if (argc != 4) throw slm::Error("usage: generate <draft-folder> <target-folder> <prompt>");

  slm::DefaultBackend device;
  auto draft = slm::load(argv[1], device);
  auto target = slm::load(argv[2], device);
  auto tokenizer = slm::Tokenizer::from(argv[2]);
  auto prompt = tokenizer.encode(argv[3]);

  slm::SpeculativeDecoder decoder{std::move(draft), std::move(target), {.draft_tokens = 4}};
  const slm::Stats stats =
      decoder.generate(prompt, slm::Sampling{.max_new_tokens = 128, .temperature = 0.0f, .seed = 7},
                       slm::TextStream{tokenizer, prompt, std::cout});  // prints whole characters as they are generated

  std::cout << "\n\n" << stats;
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
