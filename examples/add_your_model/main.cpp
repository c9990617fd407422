// Adds a compile-time config for a new model: CMake generates it from the folder's config.json, and slm::load finds it
// in a user-defined registry. only_known refuses any other shape.
//  example-add_your_model <model-folder> <prompt>
#include <iostream>
#include <slm/model/load_definition.hpp>
#include <slm/speculative.hpp>

#include "slm_models/My_Model.hpp"

using MyModels = slm::Registry<slm::configs::My_Model>;

int main(int argc, char** argv) try {
  if (argc != 3) throw slm::Error("usage: add_your_model <model-folder> <prompt>");
  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  slm::AutoregressiveDecoder decoder{slm::load<MyModels>(argv[1], slm::DefaultBackend{}, {.only_known = true})};
  const auto prompt = tokenizer.encode(argv[2]);
  const slm::Sampling sampling{.max_new_tokens = 64, .temperature = 0.0f};
  std::cout << slm::configs::My_Model::name << " has " << slm::configs::My_Model::value.layers << " layers\n"
            << argv[2];
  const slm::Stats stats = decoder.generate(prompt, sampling, slm::TextStream{tokenizer, prompt, std::cout});
  std::cout << "\n\n" << stats;
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
