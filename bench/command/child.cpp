#include "bench/command/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "bench/samples.hpp"
#include "slm/core/error.hpp"

namespace slm::bench {

namespace {

constexpr std::size_t longest_answer = std::size_t{16} << 20;

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// This process's environment with some variables replaced.
std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view found = *variable;
    const std::string_view name = found.substr(0, found.find('=') + 1);
    if (std::none_of(added.begin(), added.end(), [&](const std::string& one) { return one.starts_with(name); })) {
      all.emplace_back(found);
    }
  }
  return all;
}

/// Output of a child, with control characters replaced by spaces.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::vector<std::string>& environment,
             std::filesystem::path log)
    : name_(command.front()), log_(std::move(log)) {
  const auto require = [&](int failure, const char* what) {
    if (failure != 0) {
      throw Error("child.cannot-start", text("'", name_, "' cannot be started: ", what, ": ", std::strerror(failure)),
                  "Check that the program is installed and that its path is right");
    }
  };
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno, "socketpair");
  socket_ = ends[0];

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);  // this program ignores it
  posix_spawnattr_setsigdefault(&attributes, &defaults);

  std::vector<std::string> words = command, variables = environment_with(environment);
  const int failure = ::posix_spawnp(&process_, name_.c_str(), &files, &attributes, pointers_to(words).data(),
                                     pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  if (failure != 0) {
    process_ = -1;
    ::close(socket_);
    require(failure, "posix_spawn");
  }
}

Child::~Child() {
  end();
  ::close(socket_);
}

std::string Child::ask(std::string_view line, double seconds) {
  const double deadline = bench::seconds() + seconds;
  send(std::string{line} + "\n", deadline);
  return receive(deadline);
}

void Child::send(std::string_view line, double deadline) {
  while (!line.empty()) {
    wait_for(POLLOUT, deadline);
    const ssize_t count = ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      line.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EAGAIN && errno != EINTR) {
      ended();
    }
  }
}

std::string Child::receive(double deadline) {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != received_.npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() > longest_answer) {
      throw Error("child.long-line", text("'", name_, "' answered with a line of more than ", longest_answer, " bytes"),
                  text("Read its log '", log_.string(), "'"));
    }
    wait_for(POLLIN, deadline);
    char piece[1 << 16];
    const ssize_t count = ::recv(socket_, piece, sizeof piece, MSG_DONTWAIT);
    if (count > 0) {
      received_.append(piece, static_cast<std::size_t>(count));
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      ended();
    }
  }
}

void Child::wait_for(short events, double deadline) const {
  for (;;) {
    const double left = deadline - seconds();
    if (left <= 0) {
      throw Error("child.timeout", text("'", name_, "' did not answer within the time limit", last_words()),
                  text("Read its log '", log_.string(), "', or raise the time limit"));
    }
    pollfd state{socket_, events, 0};
    if (::poll(&state, 1, static_cast<int>(std::ceil(std::min(left, 60.0) * 1000))) > 0) return;
  }
}

std::string Child::end() {
  if (process_ < 0) return "";
  ::shutdown(socket_, SHUT_RDWR);
  // A child that reads its input exits by itself. WNOWAIT keeps the zombie, so that its process number still names the
  // group.
  siginfo_t state{};
  for (int i = 0; i < 50 && state.si_pid == 0; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    if (::waitid(P_PID, static_cast<id_t>(process_), &state, WEXITED | WNOHANG | WNOWAIT) != 0) break;
  }
  ::kill(-process_, SIGKILL);
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  if (WIFSIGNALED(status)) return text("was ended by signal ", WTERMSIG(status));
  return text("ended with exit code ", WEXITSTATUS(status));
}

void Child::ended() {
  const std::string how = process_ < 0 ? "has ended" : end();
  throw Error("child.ended", text("'", name_, "' ", how, " before it answered", last_words()),
              text("Read its log '", log_.string(), "'"));
}

std::string Child::last_words() const {
  std::ifstream file(log_, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::streamoff>(file.tellg());
  if (!file || size <= 0) return "";
  std::string tail(static_cast<std::size_t>(std::min<std::streamoff>(size, 400)), '\0');
  file.seekg(size - static_cast<std::streamoff>(tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  while (!tail.empty() && std::isspace(static_cast<unsigned char>(tail.back()))) tail.pop_back();
  const std::size_t last = tail.rfind('\n');
  return ": " + printable(last == tail.npos ? tail : tail.substr(last + 1));
}

}  // namespace slm::bench
