// Mapped files that are truncated during use: readers get zeros, the file reports it, and no signal ends the process.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csetjmp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "slm/io/mapped_file.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

namespace fs = std::filesystem;

const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::size_t letters_in(const MappedFile& file, std::size_t first = 0) {
  std::size_t count = 0;
  for (const std::byte byte : file.bytes().subspan(first)) count += byte == std::byte{'x'};
  return count;
}

/// The exit status of a child of this process that runs the action.
template <class Action>
int status_of(Action action) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGBUS, SIG_DFL);  // a sanitizer has its own
    action();
    ::_exit(0);
  }
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool ended_by_bus_error(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS; }

/// Reads a missing part of a mapping outside slm.
void read_beyond_an_own_mapping(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDWR);
  const void* const data = ::mmap(nullptr, 2 * page, PROT_READ, MAP_SHARED, file, 0);
  if (::ftruncate(file, 0) != 0) ::_exit(100);
  static_cast<void>(*static_cast<const volatile char*>(data));
}

sigjmp_buf back;
int seen = 0;

}  // namespace

// First, since other tests' mappings would install the handler in this process.
TEST_CASE("faults outside mapped files are passed to the previous handler") {
  const TemporaryFolder folder;
  const auto mapped = folder.write("mapped", std::string(3 * page, 'x'));
  const auto own = folder.write("own", std::string(2 * page, 'x'));
  const auto damage = [&] {
    const MappedFile file(mapped);
    fs::resize_file(mapped, page);
    if (letters_in(file) != page) ::_exit(101);
  };
  SECTION("none") {
    CHECK(ended_by_bus_error(status_of([&] {
      const MappedFile file(mapped);
      read_beyond_an_own_mapping(own);
    })));
    CHECK(ended_by_bus_error(status_of([&] {
      const MappedFile file(mapped);
      ::raise(SIGBUS);
    })));
    CHECK(status_of(damage) == 0);
  }
  SECTION("a handler that leaves by a jump") {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      seen += info->si_code == BUS_ADRERR;
      ::siglongjmp(back, 1);
    };
    CHECK(status_of([&] {
            ::sigaction(SIGBUS, &action, nullptr);
            damage();
            if (sigsetjmp(back, 1) == 0) read_beyond_an_own_mapping(own);
            if (seen != 1) ::_exit(102);
            fs::resize_file(mapped, 3 * page);
            damage();  // which is guarded as before
            if (seen != 1) ::_exit(103);
          }) == 0);
  }
  SECTION("a handler for a single signal, then the default action ends the process") {
    struct sigaction action {};
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    action.sa_handler = [](int) { ++seen; };
    CHECK(ended_by_bus_error(status_of([&] {
      ::sigaction(SIGBUS, &action, nullptr);
      const MappedFile file(mapped);
      read_beyond_an_own_mapping(own);
    })));
  }
  SECTION("a handler that ignores sent signals") {
    CHECK(status_of([&] {
            ::signal(SIGBUS, SIG_IGN);
            const MappedFile file(mapped);
            ::raise(SIGBUS);
          }) == 0);
    CHECK(ended_by_bus_error(status_of([&] {
      ::signal(SIGBUS, SIG_IGN);
      const MappedFile file(mapped);
      read_beyond_an_own_mapping(own);
    })));
  }
  SECTION("without file mapping no handler is installed") {
    CHECK(status_of([&] {
            set_file_mapping(false);
            const MappedFile file(mapped);
            struct sigaction now {};
            ::sigaction(SIGBUS, nullptr, &now);
            if (now.sa_handler != SIG_DFL) ::_exit(104);
            fs::resize_file(mapped, 0);
            if (letters_in(file) != 3 * page || error_id([&] { file.check_unchanged(); }) != "no error") ::_exit(105);
          }) == 0);
  }
}

TEST_CASE("a truncated mapped file reads as zeros and is rejected, in every thread") {
  const TemporaryFolder folder;
  const auto path = folder.write("file", std::string(64 * page + 10, 'x'));
  const MappedFile file(path), other(folder.write("other", "x"));
  CHECK_NOTHROW(file.check_unchanged());
  fs::resize_file(path, 3 * page);
  std::vector<std::size_t> found(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < found.size(); ++i)
      threads.emplace_back([&, i] { found[i] = letters_in(file, i * page / 2); });
  }
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == 3 * page - i * page / 2);
  for (int i = 0; i < 2; ++i) CHECK(error_id([&] { file.check_unchanged(); }) == "io.file-changed");
  CHECK_THROWS_WITH(file.check_unchanged(), Catch::Contains(path.string()) && Catch::Contains("Load it again"));
  CHECK_NOTHROW(other.check_unchanged());

  fs::resize_file(path, 64 * page + 10);  // too late: zeros were read
  CHECK(error_id([&] { file.check_unchanged(); }) == "io.file-changed");
  CHECK_NOTHROW(MappedFile(path).check_unchanged());
}

TEST_CASE("truncation is detected even if nothing of the missing part was read") {
  const TemporaryFolder folder;
  const std::size_t size = 2 * page + 100;
  for (const std::size_t rest : {2 * page + 99, 2 * page, page + 1, std::size_t{0}}) {
    CAPTURE(rest);
    const auto path = folder.write("file", std::string(size, 'x'));
    MappedFile opened(path);
    const MappedFile file = std::move(opened);
    CHECK_NOTHROW(file.check_unchanged());
    fs::resize_file(path, rest);
    CHECK(error_id([&] { file.check_unchanged(); }) == "io.file-changed");
  }
}

TEST_CASE("a thread that blocks SIGBUS can open files, and blocks it afterwards") {
  const TemporaryFolder folder;
  const auto path = folder.write("file", "x");
  std::jthread([&] {
    sigset_t all, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const MappedFile file(path);
    {
      const detail::BusErrorsTaken taken;
      fs::resize_file(path, 0);
      CHECK(error_id([&] { file.check_unchanged(); }) == "io.file-changed");
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    CHECK(sigismember(&now, SIGBUS) == 1);
  });
}

TEST_CASE("files beyond the size of the mapping table are read into memory") {
  const TemporaryFolder folder;
  const auto path = folder.write("file", std::string(page + 1, 'x'));
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < 1100; ++i) files.push_back(std::make_unique<MappedFile>(path));
  fs::resize_file(path, 1);
  int changed = 0;
  for (const auto& file : files) {
    const bool refused = error_id([&] { file->check_unchanged(); }) == "io.file-changed";
    changed += refused;
    CHECK(letters_in(*file) == (refused ? 1 : page + 1));
  }
  CHECK(changed > 1000);
  CHECK(changed <= 1024);

  files.clear();  // their entries are free again
  const MappedFile file(path);
  fs::resize_file(path, 0);
  CHECK(error_id([&] { file.check_unchanged(); }) == "io.file-changed");
}

TEST_CASE("truncation during a read is an error") {
  const TemporaryFolder folder;
  const auto path = folder.write("file", std::string(2 * page, 'x'));
  const auto length_then = [&](std::size_t rest) {
    return error_id([&] {
      read_mapped(path, [&](std::string_view text) {
        fs::resize_file(path, rest);
        return text.size();
      });
    });
  };
  CHECK(length_then(2 * page) == "no error");
  CHECK(length_then(page) == "io.file-changed");
}
