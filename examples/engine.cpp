// An engine in a host application: requests arrive at any time, one thread computes, and each answer equals the one
// that its request produces alone.
//  example-engine <model-folder> <prompt>...
#include <iostream>
#include <slm/engine.hpp>
#include <thread>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 3) throw slm::Error("usage: engine <model-folder> <prompt>...");

  slm::DefaultBackend device;
  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  slm::Engine engine{slm::Lookup{}, slm::load(argv[1], device)};
  std::jthread computing([&](std::stop_token stop) { engine.run(stop); });

  std::vector<slm::Answer> answers;
  std::vector<std::vector<slm::Token>> prompts;
  for (int i = 2; i < argc; ++i) {
    prompts.push_back(tokenizer.encode(argv[i]));
    answers.push_back(engine.submit({.prompt = prompts.back(), .sampling = {.max_new_tokens = 32, .temperature = 0}}));
  }

  for (std::size_t i = 0; i < answers.size(); ++i) {  // other requests continue while this one is read
    std::cout << argv[i + 2];
    slm::TextStream stream{tokenizer, prompts[i], std::cout};
    while (const auto token = answers[i].next()) stream(token->token);
    stream.finish();
    std::cout << "\n--- " << answers[i].stats().tokens_per_target_step() << " tokens per step\n";
  }
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
