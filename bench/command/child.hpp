// A child process with a line protocol: one line asks, one line answers. Its output is not trusted.
#pragma once

#include <sys/types.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slm::bench {

class Child {
 public:
  /// Starts a program from PATH in a separate process group. Its standard input and output carry the protocol, its
  /// standard error goes to the file `log`. environment: "NAME=VALUE" entries, added to this process's environment.
  /// Throws child.cannot-start.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
        std::filesystem::path log);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Ends the child and all processes of its group.
  ~Child();

  /// Sends one line and returns the answer line. Throws child.timeout after `seconds`, child.ended, child.long-line.
  std::string ask(std::string_view line, double seconds);

 private:
  void send(std::string_view line, double deadline);
  std::string receive(double deadline);
  void wait_for(short events, double deadline) const;
  /// Ends the group. Returns how the child ended, as text.
  std::string end();
  [[noreturn]] void ended();
  /// The last lines of its standard error.
  std::string last_words() const;

  std::string name_;
  std::filesystem::path log_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;
};

}  // namespace slm::bench
