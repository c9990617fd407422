// Sorts texts by similarity to the first one. Each text is embedded as the mean of the model's hidden states, and
// compared by the cosine of the angle.
//  example-nearest <model> <text> <text>...
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <slm/engine.hpp>
#include <string>
#include <utility>
#include <vector>

float cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const auto dot = [](const auto& x, const auto& y) { return std::inner_product(x.begin(), x.end(), y.begin(), 0.0f); };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

int main(int argc, char** argv) try {
  if (argc < 3) throw slm::Error("usage: nearest <model> <text> <text>...");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  slm::Engine engine{slm::Drafter{}, slm::load(argv[1], slm::DefaultBackend{})};
  std::vector<slm::Answer> answers;
  for (int i = 2; i < argc; ++i) {
    answers.push_back(engine.submit({.prompt = tokenizer.encode(argv[i]), .pooling = slm::Pooling::mean}));
  }
  engine.run();  // all texts in common steps

  std::vector<std::pair<float, std::string>> others;
  for (std::size_t i = 1; i < answers.size(); ++i) {
    answers[i].next();  // returns no token, but may throw the error
    others.emplace_back(cosine(answers[0].embedding(), answers[i].embedding()), argv[i + 2]);
  }
  std::sort(others.rbegin(), others.rend());
  for (const auto& [likeness, text] : others) std::cout << likeness << "  " << text << '\n';
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
