// Saves a sequence with its KV cache to a file. The next run continues without re-processing it.
//  example-session <model> <file> <text to add>
#include <fstream>
#include <iostream>
#include <slm/speculative.hpp>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 4) throw slm::Error("usage: session <model> <file> <text>");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const slm::AnyModel model = slm::load(argv[1], slm::DefaultBackend{});
  slm::SpeculativeDecoder decoder{slm::Lookup{}, model};

  std::vector<slm::Token> prompt;
  if (std::ifstream in(argv[2], std::ios::binary); in) {
    slm::Sequence saved = slm::Sequence::load(in, model.pool());  // refuses a sequence of another model
    prompt.assign(saved.tokens().begin(), saved.tokens().end());
    decoder.resume(std::move(saved));
  }
  const auto added = tokenizer.encode(argv[3], prompt.empty());  // special tokens at the beginning only
  prompt.insert(prompt.end(), added.begin(), added.end());

  const slm::Stats stats =
      decoder.generate(prompt, {.max_new_tokens = 24, .temperature = 0}, slm::TextStream{tokenizer, prompt, std::cout});
  std::cout << "\n--- " << stats.reused_tokens << " of " << stats.prompt_tokens << " tokens reused\n";

  slm::Sequence text = decoder.sequence().fork();
  slm::Batch batch;  // the answer's last token is not in the sequence yet
  batch.add(text, decoder.history().subspan(static_cast<std::size_t>(text.length())));
  model.forward(batch);
  std::ofstream out(argv[2], std::ios::binary);
  text.save(out);
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
