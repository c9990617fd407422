#include "completion.hpp"

#include <slm/speculative.hpp>

// The shapes are not known at compile time: an empty registry runs any shape as Dynamic and keeps this file small.
struct Completer::State {
  slm::DefaultBackend device;
  slm::Tokenizer tokenizer;
  slm::SpeculativeDecoder<> decoder;
};

Completer::Completer(const std::string& draft_folder, const std::string& target_folder) {
  slm::DefaultBackend device;
  state_ = std::make_unique<State>(
      State{device, slm::Tokenizer::from(target_folder),
            slm::SpeculativeDecoder<>(slm::load(draft_folder, device), slm::load(target_folder, device))});
}

Completer::~Completer() = default;

std::string Completer::complete(const std::string& prompt, int max_new_tokens) {
  const std::vector<slm::Token> tokens = state_->tokenizer.encode(prompt);
  std::string completion;
  const slm::Sampling sampling{.max_new_tokens = max_new_tokens, .temperature = 0.0f};
  slm::TextStream stream{state_->tokenizer, tokens, [&](std::string_view text) { completion += text; }};
  state_->decoder.generate(tokens, sampling, stream);
  return completion;
}
