// A conversation on the terminal, one line per question. Only the new question is processed; earlier turns are in the
// KV cache.
//  example-chat <model> [<template>]
#include <iostream>
#include <slm/speculative.hpp>
#include <slm/text/chat.hpp>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) throw slm::Error("usage: chat <model> [<template>], with questions on standard input");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const auto form = slm::ChatTemplate::from(argv[1], argc == 3 ? argv[2] : "");
  const auto stops = form.stops(tokenizer);
  slm::SpeculativeDecoder decoder{slm::Lookup{}, slm::load(argv[1], slm::DefaultBackend{})};

  std::vector<slm::ChatMessage> messages;
  for (std::string question; std::getline(std::cin, question);) {
    messages.push_back({"user", question});
    const auto prompt = form.encode(tokenizer, messages);
    std::string answer;
    const auto write = [&](std::string_view more) { std::cout << more << std::flush, answer += more; };
    const slm::Stats stats =
        decoder.generate(prompt, {.max_new_tokens = 200, .temperature = 0, .stop_tokens = stops.tokens},
                         slm::TextStream{tokenizer, prompt, write, stops.strings});
    std::cout << "\n--- " << stats.prompt_tokens - stats.reused_tokens << " of " << stats.prompt_tokens
              << " tokens read\n";
    messages.push_back({"assistant", answer});
  }
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
