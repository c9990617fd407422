// A pair of models fixed at compile time: shapes, weight formats and backends are types, calls are not virtual, and
// incompatible vocabularies are a compile error. CMakeLists.txt generates the configs from the folders' config.json;
// for a known model, include slm/config/known_models.hpp and use configs such as slm::configs::CodeLlama_7B.
//  example-static_pair <draft-folder> <target-folder> <prompt>
#include <iostream>
#include <slm/model/model.hpp>
#include <slm/speculative.hpp>

#include "slm_models/Demo_Draft.hpp"
#include "slm_models/Demo_Target.hpp"

using Draft = slm::Model<slm::configs::Demo_Draft, slm::Bf16, slm::DefaultBackend>;
using Target = slm::Model<slm::configs::Demo_Target, slm::Bf16, slm::DefaultBackend>;

int main(int argc, char** argv) try {
  if (argc != 4) throw slm::Error("usage: static_pair <draft-folder> <target-folder> <prompt>");
  slm::DefaultBackend device;
  const auto tokenizer = slm::Tokenizer::from(argv[2]);
  slm::SpeculativeDecoder decoder{Draft::load(argv[1], device), Target::load(argv[2], device)};
  const slm::Sampling sampling{.max_new_tokens = 64, .temperature = 0.0f};
  const auto prompt = tokenizer.encode(argv[3]);
  std::cout << argv[3];
  const slm::Stats stats = decoder.generate(prompt, sampling, slm::TextStream{tokenizer, prompt, std::cout});
  std::cout << "\n\n" << stats;
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
