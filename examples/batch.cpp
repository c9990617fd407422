// Continues many prompts at once with one model: every pass reads the weights once for all of them. Each text is the
// one it is alone, whatever stands beside it.
//   example-batch <model-folder> <prompt>...
#include <algorithm>
#include <iostream>
#include <slm/speculative.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 3) throw slm::Error("usage: batch <model-folder> <prompt>...");

  slm::DefaultBackend device;
  const auto model = slm::load(argv[1], device);
  const auto tokenizer = slm::Tokenizer::from(argv[1]);

  std::vector<slm::Sequence> texts;
  std::vector<std::vector<slm::Token>> next;  // what each text reads in the coming pass: first its prompt, then a token
  for (int i = 2; i < argc; ++i) {
    texts.push_back(model.sequence());
    next.push_back(tokenizer.encode(argv[i]));
  }

  slm::Batch batch;
  for (int step = 0; step < 32; ++step) {
    batch.clear();
    for (std::size_t i = 0; i < texts.size(); ++i) batch.add(texts[i], next[i], {.want = slm::Want::logits});
    model.forward(batch);
    for (int i = 0; i < batch.size(); ++i) {
      const float* logits = batch.logits(i).row(0);  // [vocab] after the text's last token
      const auto likeliest = std::max_element(logits, logits + model.info().vocab) - logits;
      next[static_cast<std::size_t>(i)] = {static_cast<slm::Token>(likeliest)};
    }
  }

  for (const slm::Sequence& text : texts) std::cout << tokenizer.decode(text.tokens()) << "\n---\n";
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
