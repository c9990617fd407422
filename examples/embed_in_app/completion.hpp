// The application's interface to a language model; only one source file includes slm.
#pragma once

#include <memory>
#include <string>

class Completer {
 public:
  Completer(const std::string& draft_folder, const std::string& target_folder);
  ~Completer();

  /// Returns the continuation of `prompt`.
  std::string complete(const std::string& prompt, int max_new_tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
