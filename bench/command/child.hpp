// A child process that is asked in lines and answers in lines, and of which nothing is taken for granted.
#pragma once

#include <sys/types.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slm::bench {

class Child {
 public:
  /// Starts a program, found as a shell finds it, in a process group of its own. Its standard input and output are this
  /// dialogue, its standard error goes to the file `log`. environment: "NAME=VALUE", besides this process's own.
  /// Throws child.cannot-start.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
        std::filesystem::path log);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Ends the child and whatever it started.
  ~Child();

  /// Sends one line and gives the line that answers it. Throws child.timeout after that many seconds, child.ended,
  /// child.long-line.
  std::string ask(std::string_view line, double seconds);

 private:
  void send(std::string_view line, double deadline);
  std::string receive(double deadline);
  void wait_for(short events, double deadline) const;
  /// Ends the group; how the child itself ended, in words.
  std::string end();
  [[noreturn]] void ended();
  /// The last lines that it wrote to its standard error.
  std::string last_words() const;

  std::string name_;
  std::filesystem::path log_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;
};

}  // namespace slm::bench
