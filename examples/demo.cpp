// The program of ./demo: continues Python functions with the embedded pair of models, plainly and speculatively.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "slm/speculative.hpp"
#include "tools/demo/comparison.hpp"

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: example-demo PAIR    a folder with draft/, target/ and prompts/\n";
    return 2;
  }
  const std::filesystem::path pair = arguments[1];
  const slm::DefaultBackend device;
  const slm::AnyModel draft = slm::load(pair / "draft", device), target = slm::load(pair / "target", device);
  const auto tokenizer = slm::Tokenizer::from(pair / "target");
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(pair / "prompts"), {});
  std::sort(files.begin(), files.end());
  std::vector<demo::Prompt> prompts;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    prompts.push_back({text, tokenizer.encode(text)});
  }
  if (prompts.empty()) throw slm::Error("cli.no-prompts", "expected prompts, found none", "Name another folder");

  slm::AutoregressiveDecoder plain(target);
  slm::SpeculativeDecoder speculative(draft, target, {.draft_tokens = 4});
  const slm::Sampling sampling{.max_new_tokens = 128, .temperature = 0};
  const auto print = [](std::string_view piece) { std::cout << piece << std::flush; };
  demo::show(speculative, tokenizer, prompts.front(), sampling, print);
  const demo::Comparison result = demo::compare(plain, speculative, prompts, sampling, 5);
  print(demo::table_of(result));
  demo::check_identical(result);
} catch (const std::exception& error) {
  std::cerr << "demo: " << error.what() << '\n';
  return 1;
}
