// An application that completes the first line of a Python function.
#include <exception>
#include <iostream>

#include "completion.hpp"

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: app <draft-folder> <target-folder>\n";
    return 2;
  }
  Completer completer(argv[1], argv[2]);
  const std::string prompt = "def read_config(path):\n";
  std::cout << prompt << completer.complete(prompt, 48) << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
