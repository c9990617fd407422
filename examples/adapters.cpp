// Answers one prompt with a model and with each of several LoRA adapters, in one batch: the model's weights are in
// memory once, and each step reads them once.
//  example-adapters <model> <prompt> <adapter-folder>...
#include <iostream>
#include <slm/adapters.hpp>
#include <slm/speculative.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 4) throw slm::Error("usage: adapters <model> <prompt> <adapter-folder>...");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const slm::AnyModel model = slm::load(argv[1], slm::DefaultBackend{});
  slm::AutoregressiveDecoder decoder{model};

  const auto prompt = tokenizer.encode(argv[2]);
  std::vector<slm::AdapterRef> adapters{nullptr};  // the base model
  for (int i = 3; i < argc; ++i) adapters.push_back(slm::load_adapter(argv[i], model));

  std::vector<slm::Request> requests;
  for (const slm::AdapterRef& adapter : adapters) {
    requests.push_back({.prompt = prompt, .sampling = {.max_new_tokens = 32, .temperature = 0}, .adapter = adapter});
  }
  std::vector<std::vector<slm::Token>> answers(requests.size());
  decoder.generate(requests, [&](std::size_t i, const slm::GeneratedToken& next) {
    answers[i].push_back(next.token);
    return true;
  });

  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::cout << "--- " << (i == 0 ? "no adapter" : argv[i + 2]) << '\n' << tokenizer.decode(answers[i]) << '\n';
  }
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
