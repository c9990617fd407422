// An engine in a program's own event loop, on its only thread: each iteration runs one step of the model. Each line of
// standard input is a prompt; requests run concurrently, and answers are printed as they end.
//  example-event_loop <model>
#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <list>
#include <slm/engine.hpp>
#include <string>
#include <vector>

struct Asked {
  std::string prompt;
  slm::Answer answer;
  std::vector<slm::Token> tokens;
};

int main(int argc, char** argv) try {
  if (argc != 2) throw slm::Error("usage: event_loop <model>, with prompts on standard input");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  slm::Engine engine{slm::Lookup{}, slm::load(argv[1], slm::DefaultBackend{})};
  std::list<Asked> asked;
  std::string input;

  for (bool open = true; open || !asked.empty();) {
    pollfd events{.fd = open ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    poll(&events, 1, asked.empty() ? -1 : 0);  // blocks only if there is nothing to compute
    if (events.revents != 0) {
      char bytes[4096];
      const auto count = read(STDIN_FILENO, bytes, sizeof bytes);
      open = count > 0;
      if (open) input.append(bytes, static_cast<std::size_t>(count));
    }
    for (std::size_t end; (end = input.find('\n')) != input.npos; input.erase(0, end + 1)) {
      const std::string prompt = input.substr(0, end);
      if (prompt.empty()) continue;
      asked.push_back(
          {prompt,
           engine.submit({.prompt = tokenizer.encode(prompt), .sampling = {.max_new_tokens = 32, .temperature = 0}}),
           {}});
    }

    engine.step();  // one round of all running requests

    for (auto one = asked.begin(); one != asked.end();) {
      while (const auto token = one->answer.try_next()) one->tokens.push_back(token->token);
      if (!one->answer.over()) {
        ++one;
        continue;
      }
      std::cout << one->prompt << tokenizer.decode(one->tokens) << "\n---\n" << std::flush;
      one = asked.erase(one);
    }
  }
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
