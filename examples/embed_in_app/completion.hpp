// The application's own word for what it wants of a language model; slm stays behind it, in one source file.
#pragma once

#include <memory>
#include <string>

class Completer {
 public:
  Completer(const std::string& draft_folder, const std::string& target_folder);
  ~Completer();

  /// The text that follows `prompt`.
  std::string complete(const std::string& prompt, int max_new_tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
