#if !defined(_WIN32)

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "slm/core/error.hpp"
#include "tools/cli/interrupts.hpp"
#include "tools/cli/system.hpp"

namespace cli {

std::vector<std::string> begin_process(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  // A write beyond the process's file size limit fails like any other write too.
  std::signal(SIGXFSZ, SIG_IGN);
  return {arguments, arguments + count};
}

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

std::FILE* open_to_read(const std::filesystem::path& path) { return std::fopen(path.c_str(), "rb"); }

std::filesystem::path program_path() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure);
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::size_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (std::size_t kib = 0; word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  return 0;
}

class EndSignals::State {
 public:
  sigset_t set;
};

EndSignals::EndSignals() : state_(std::make_unique<State>()) {
  sigemptyset(&state_->set);
  sigaddset(&state_->set, SIGTERM);
  sigaddset(&state_->set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &state_->set, nullptr);
}
EndSignals::~EndSignals() = default;

void EndSignals::wait() const {
  int received = 0;
  while (sigwait(&state_->set, &received) != 0) continue;
}

bool EndSignals::comes_within(std::chrono::milliseconds time) const {
  const timespec limit{time.count() / 1000, time.count() % 1000 * 1'000'000};
  return sigtimedwait(&state_->set, nullptr, &limit) > 0;
}

volatile std::sig_atomic_t interrupts = 0;

namespace {

int wake_up = -1;  // the handler writes to it, which ends a blocking read

extern "C" void on_interrupt(int) {
  const int kept = errno;
  interrupts = interrupts + 1;
  // After two ignored interrupts, the third ends the program.
  if (interrupts >= 3) std::signal(SIGINT, SIG_DFL);
  [[maybe_unused]] const auto written = ::write(wake_up, "!", 1);
  errno = kept;
}

}  // namespace

class InterruptGuard::State {
 public:
  int ends[2];
  struct sigaction before = {};
};

InterruptGuard::InterruptGuard() : state_(std::make_unique<State>()) {
  if (pipe2(state_->ends, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw slm::Error("cli.no-pipe", slm::text("could not open a pipe: ", std::strerror(errno)),
                     "Close some files, or raise the limit of open files");
  }
  wake_up = state_->ends[1];
  interrupts = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, &state_->before);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &state_->before, nullptr);
  ::close(state_->ends[0]);
  ::close(state_->ends[1]);
}

void InterruptGuard::drain() const {
  char bytes[64];
  while (::read(state_->ends[0], bytes, sizeof bytes) > 0) continue;
}

InterruptGuard::Input InterruptGuard::read(std::string& held) const {
  const auto fail = [] {
    throw slm::Error("cli.input-failed", "standard input could not be read", "Pipe a text or name a file");
  };
  for (;;) {
    pollfd sources[2] = {{STDIN_FILENO, POLLIN, 0}, {state_->ends[0], POLLIN, 0}};
    if (poll(sources, 2, -1) < 0 && errno != EINTR) fail();
    if (sources[1].revents != 0 || interrupts != 0) {
      drain();
      return Input::interrupt;
    }
    if (sources[0].revents == 0) continue;
    char piece[1 << 12];
    const auto count = ::read(STDIN_FILENO, piece, sizeof piece);
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail();
    if (count == 0) return Input::end;
    if (count < 0) continue;
    held.append(piece, static_cast<std::size_t>(count));
    return Input::bytes;
  }
}

}  // namespace cli

#endif
