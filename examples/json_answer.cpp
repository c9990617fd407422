// Constrains an answer to JSON of a given form by masking all other tokens. Drafts are verified under the same mask, so
// speculation stays lossless.
//  example-json_answer <model> <prompt>
#include <algorithm>
#include <iostream>
#include <limits>
#include <slm/speculative.hpp>
#include <string>
#include <string_view>
#include <vector>

enum class Fit { no, begun, whole };

struct Field {
  std::string_view before, characters;  // fixed text, then some of these characters
  std::size_t least, most;
};

/// {"name":"...","count":...}
constexpr Field form[] = {
    {"{\"name\":\"", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ _", 1, 24},
    {"\",\"count\":", "0123456789", 1, 4},
    {"}", "", 0, 0},
};

Fit fit(std::string_view text) {
  for (const auto& [before, characters, least, most] : form) {
    if (text.size() < before.size()) return before.starts_with(text) ? Fit::begun : Fit::no;
    if (!text.starts_with(before)) return Fit::no;
    text.remove_prefix(before.size());
    const std::size_t count = std::min(text.find_first_not_of(characters), text.size());
    if (count > most || (count < least && count < text.size())) return Fit::no;
    text.remove_prefix(count);
    if (text.empty() && most > 0) return Fit::begun;
  }
  return text.empty() ? Fit::whole : Fit::no;
}

int main(int argc, char** argv) try {
  if (argc != 3) throw slm::Error("usage: json_answer <model> <prompt>");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const auto prompt = tokenizer.encode(argv[2]);
  slm::SpeculativeDecoder decoder{slm::Lookup{}, slm::load(argv[1], slm::DefaultBackend{})};

  std::vector<std::string> pieces;
  for (slm::Token id = 0; id < tokenizer.vocab(); ++id) pieces.push_back(tokenizer.bytes(id));
  const auto text_of = [&](std::span<const slm::Token> tokens) {
    std::string text;
    for (const slm::Token id : tokens) text += pieces[static_cast<std::size_t>(id)];
    return text;
  };

  slm::Sampling sampling{.max_new_tokens = 60, .temperature = 0};
  sampling.adjust_logits = [&](std::span<const slm::Token> prefix, std::span<float> logits) {
    const std::string so_far = text_of(prefix.subspan(prompt.size()));
    if (fit(so_far) == Fit::whole) return;  // the sink ends generation here
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const bool may_follow = id < pieces.size() && !pieces[id].empty() && fit(so_far + pieces[id]) != Fit::no;
      if (!may_follow) logits[id] = -std::numeric_limits<float>::infinity();
    }
  };
  std::vector<slm::Token> answer;
  decoder.generate(prompt, sampling, [&](slm::Token next) {
    answer.push_back(next);
    return fit(text_of(answer)) != Fit::whole;
  });
  std::cout << text_of(answer) << '\n';
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
