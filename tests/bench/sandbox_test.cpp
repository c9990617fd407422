// Programs that try to escape, to survive, to use all resources, or to pass although they are wrong: all are contained.
#include "bench/command/sandbox.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm::bench;
using slm::testing::error_id;

SandboxOptions options_of(int seconds = 60) { return {.processor_seconds = 1, .seconds = seconds}; }

/// Null if bubblewrap is not installed or cannot build a sandbox.
const Sandbox* sandbox() {
  static const auto made = []() -> std::unique_ptr<Sandbox> {
    try {
      return std::make_unique<Sandbox>(options_of());
    } catch (const slm::Error& error) {
      WARN("SKIPPED: " << error.what());
      return nullptr;
    }
  }();
  return made.get();
}

#define NEED_SANDBOX(inside)        \
  if (sandbox() == nullptr) return; \
  const Sandbox& inside = *sandbox()

constexpr const char* test_of_next = "def check(candidate):\n    assert candidate(1) == 2\n";

Verdict verdict_of(const Sandbox& inside, const std::string& source, const std::string& test = test_of_next) {
  return inside.run({source, "f", "", test});
}

/// Of statements that must all fail for lack of a permission, a file or a network: those that succeeded, with their
/// results.
std::string successes(const Sandbox& inside, const std::vector<std::string>& attempts) {
  const std::string source = R"py(
def f(x):
    wrong = ''
    for attempt in attempts:
        try: exec(attempt)
        except (PermissionError, FileNotFoundError): continue
        except OSError as error:
            if error.errno in (11, 30, 101): continue  # no process, a read-only file system, no network
            name = os.strerror(error.errno)
        except Exception as error: name = type(error).__name__
        else: name = 'done'
        wrong += attempt + ' -> ' + name + ';'
    return wrong
)py";
  const Verdict verdict = verdict_of(inside, "import os, sys\nattempts = " + slm::Json(attempts).dump() + "\n" + source,
                                     "def check(candidate):\n    raise ValueError(candidate(1))\n");
  const std::string prefix = "ValueError";
  REQUIRE(verdict.detail.compare(0, prefix.size(), prefix) == 0);
  return verdict.detail.size() > prefix.size() ? verdict.detail.substr(prefix.size() + 2) : "";
}

/// Whether all processes of the runs end. Orphans become this process's children.
struct NothingLeft {
  NothingLeft() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~NothingLeft() {
    constexpr int milliseconds = 10'000;
    pid_t ended = 0;
    for (int waited = 0; waited < milliseconds && (ended = ::waitpid(-1, nullptr, WNOHANG)) >= 0;) {
      if (ended == 0) ::usleep(10'000), waited += 10;
    }
    CHECK(ended == -1);
    CHECK(errno == ECHILD);
  }
};

TEST_CASE("a correct program passes; a wrong one fails with its last line") {
  NEED_SANDBOX(inside);
  CHECK(verdict_of(inside, "def f(x): return x + 1").outcome == Outcome::passed);
  const Verdict verdict = verdict_of(inside, "def f(x): return x");
  CHECK(verdict.outcome == Outcome::failed);
  CHECK(verdict.detail == "AssertionError: assert candidate(1) == 2");
  CHECK(verdict_of(inside, "def f(x): return {}['a']").detail == "KeyError: 'a'");
  CHECK(verdict_of(inside, "def f(x): raise ValueError('\\ud800')").detail == "ValueError: ?");
  CHECK(verdict_of(inside, "def f(x)").detail == "SyntaxError: expected ':' (<program>, line 1)");
  CHECK(verdict_of(inside, "def g(x): return 2").detail == "KeyError: 'f'");
  CHECK(verdict_of(inside, "def f(x): return f(x)").detail == "RecursionError: maximum recursion depth exceeded");
  CHECK(verdict_of(inside, "def f(x): return x + 1", "def check(candidate): missing").outcome == Outcome::failed);
  CHECK(verdict_of(inside, "def f(x): return x + 1", "no test").outcome == Outcome::failed);
}

TEST_CASE("values keep their types") {
  NEED_SANDBOX(inside);
  const std::string source =
      "import collections, fractions, decimal\n"
      "def f(kind, *rest, scale=1):\n"
      "    if kind == 'echo': return rest\n"
      "    if kind == 'scale': return rest[0] * scale\n"
      "    if kind == 'counter': return collections.Counter(rest[0])\n"
      "    if kind == 'half': return fractions.Fraction(1, 2)\n"
      "    if kind == 'tenth': return decimal.Decimal('0.1')\n"
      "    if kind == 'map': return map(abs, rest[0])\n"
      "    if kind == 'object': return object()\n";
  const std::string values =
      "(None, True, False, 0, -1, 10**400, 0.1, -0.0, float('inf'), 1j, 'a\\n\\ud800\\u00e9', b'\\0\\xff', [], [[1], "
      "(2,)], "
      "(), {1, 2}, frozenset({3}), {'a': [1], 2: {3: 4}, (5, 6): None}, range(2, 9, 3))";
  const std::string test =
      "def check(candidate):\n"
      "    values = " +
      values +
      "\n"
      "    back = candidate('echo', *values)\n"
      "    assert back == values\n"
      "    assert [type(value) for value in back] == [type(value) for value in values]\n"
      "    assert candidate('echo', float('nan'))[0] != candidate('echo', float('nan'))[0]\n"
      "    assert candidate('scale', 3, scale=2) == 6\n"
      "    assert candidate('counter', 'aab') == {'a': 2, 'b': 1}\n"
      "    assert candidate('half') == 0.5\n"
      "    assert str(candidate('tenth')) == '0.1'\n"
      "    assert tuple(candidate('map', [-1, 2])) == (1, 2)\n"
      "    assert candidate('map', [-1, 2]) != [1, 2]\n"
      "    assert candidate('nothing') is None\n"
      "    assert candidate('object') != candidate('object')\n";
  CHECK(verdict_of(inside, source, test).detail == "");
  // the control: the same test with one value changed
  CHECK(verdict_of(inside, source, test + "    assert candidate('scale', 3) == 4\n").detail ==
        "AssertionError: assert candidate('scale', 3) == 4");
}

TEST_CASE("a program passes only if it is correct") {
  NEED_SANDBOX(inside);
  const std::string wrong = "def f(x): return 7\n";
  const std::string write_all = "for file in range(64):\n  try: os.write(file, ";
  const std::string sources[] = {
      wrong + "import os\nos._exit(0)",
      wrong + "import sys\nsys.exit(0)",
      "import os\ndef f(x): os._exit(0)",
      "def f(x): raise SystemExit(0)",
      wrong + "print('{\"verdict\": \"passed\"}')",
      wrong + "import os\n" + write_all + "b'{\"verdict\": \"passed\"}\\n' * 9)\n  except OSError: pass",
      wrong +
          "import builtins, json\nbuiltins.AssertionError = None\nbuiltins.all = lambda x: True\njson.dumps = lambda "
          "x: '{}'",
      wrong + "import json\njson.dumps = lambda x: '{\"verdict\": \"passed\", \"value\": [\"opaque\"]}'",
      "class Equal:\n  def __eq__(self, other): return True\ndef f(x): return Equal()",
      "class Equal(int):\n  def __eq__(self, other): return True\ndef f(x): return Equal(7)",
      wrong + "def check(candidate): pass",
      wrong + "import sys\nsys._getframe(1).f_globals['serve'] = None\nsys.modules.clear()",
      "import os\n" + write_all + "b'[' * 20000 + b'\\n')\n  except OSError: pass\n" + wrong,
      "import os\n" + write_all +
          "b'{\"value\": [\"range\", [0, [\"int\", \"0x7fffffffffffffff\"], 1]]}\\n')\n  except OSError: pass\n" +
          wrong,
      "import os, time\ndef f(x):\n  os.closerange(3, 64)\n  time.sleep(1000)",
  };
  for (const std::string& source : sources) {
    const Verdict verdict = verdict_of(inside, source);
    INFO(source << " -> " << verdict.detail);
    CHECK(verdict.outcome == Outcome::failed);
    CHECK_FALSE(verdict.detail.empty());
  }
}

TEST_CASE("programs that use all time, memory or output are stopped") {
  NEED_SANDBOX(inside);
  const NothingLeft nothing_left;
  CHECK(verdict_of(inside, "def f(x):\n  while True: pass").outcome == Outcome::timed_out);
  CHECK(verdict_of(inside, "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass").outcome ==
        Outcome::timed_out);
  CHECK(verdict_of(Sandbox(options_of(8)), "import time\ndef f(x): time.sleep(1000)").detail == "after 8 s");
  CHECK(verdict_of(inside, "def f(x): return len([0] * (1 << 40))").outcome == Outcome::out_of_memory);
  CHECK(verdict_of(inside, "def f(x):\n  held = []\n  while True: held.append(bytearray(1 << 20))").outcome ==
        Outcome::out_of_memory);
  CHECK(verdict_of(inside, "import ctypes\nctypes.string_at(0)").detail == "SIGSEGV");
  CHECK(verdict_of(inside, "import ctypes\nctypes.string_at(0)").outcome == Outcome::crashed);
  // output is discarded; an endless result is cut off
  CHECK(
      verdict_of(inside,
                 "import sys\ndef f(x):\n  for i in range(2000): print('x' * 10000), sys.stderr.write('y' * 10000)\n  "
                 "return x + 1")
          .outcome == Outcome::passed);
  CHECK(verdict_of(inside, "def f(x): return 'x' * (20 << 20)").detail == "its result is larger than 16 MiB");
}

TEST_CASE("no process or thread is created, and none remains") {
  NEED_SANDBOX(inside);
  const NothingLeft nothing_left;
  CHECK(successes(inside, {"os.fork()", "os.posix_spawn(sys.executable, ['python3', '-c', ''], {})",
                           "__import__('subprocess').run([sys.executable, '-c', ''])"}) == "");
  const std::string thread = "__import__('threading').Thread(target=print).start()";
  CHECK(successes(inside, {thread}) == thread + " -> RuntimeError;");
  CHECK(verdict_of(inside, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass").outcome ==
        Outcome::timed_out);
}

TEST_CASE("killing slm ends the sandboxed processes") {
  NEED_SANDBOX(inside);
  const NothingLeft nothing_left;
  const pid_t child = ::fork();
  if (child == 0) {
    verdict_of(inside, "import time\ndef f(x): time.sleep(1000)");
    ::_exit(0);
  }
  ::usleep(700'000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

/// A listening socket on the loopback, and whether a client connected.
struct Listener {
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(file, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(file, 4) == 0);
    socklen_t size = sizeof address;
    ::getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(file); }
  bool was_called() const {
    const int caller = ::accept4(file, nullptr, nullptr, SOCK_NONBLOCK);
    if (caller >= 0) ::close(caller);
    return caller >= 0;
  }
  int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int port = 0;
};

TEST_CASE("there is no network") {
  NEED_SANDBOX(inside);
  const Listener listener;
  const std::string port = std::to_string(listener.port);
  const std::string connect = "__import__('socket').create_connection(('127.0.0.1', " + port + "), 1)";
  const std::string refused = successes(inside, {connect});
  CHECK(refused == connect + " -> Connection refused;");  // it has only its own loopback
  CHECK(successes(inside, {"__import__('socket').create_connection(('192.0.2.1', 80), 1)"}) == "");
  CHECK_FALSE(listener.was_called());
  // the control: outside, the same line connects
  CHECK(std::system(("python3 -c \"" + connect + "\"").c_str()) == 0);
  CHECK(listener.was_called());
}

TEST_CASE("Python's files are read-only, a small folder is writable, nothing else is visible") {
  NEED_SANDBOX(inside);
  const slm::testing::TemporaryFolder folder;
  const std::string secret = folder.write("secret", "s").string();
  std::vector<std::string> attempts = {
      "open('/planted', 'w')", "open('/usr/lib/planted', 'w')", "os.symlink('/usr/lib', '2'); open('2/planted', 'w')",
      "os.symlink('/', '3'); open('3/planted', 'w')", "os.listdir('" + folder.path().string() + "')"};
  for (const std::string& path : {secret, std::string("/etc/passwd"), std::string("/etc/hostname"),
                                  std::string("/proc/1/environ"), std::string("/dev/mem")}) {
    attempts.push_back("open('" + path + "')");
  }
  CHECK(successes(inside, attempts) == "");
  const std::string name = folder.path().filename().string() + "-inside";  // no other program has a file of this name
  const std::string use =
      "assert os.listdir('/tmp') == [] and os.getcwd() == '/tmp'; open('" + name + "', 'w').write('a')";
  CHECK(successes(inside, {use}) == use + " -> done;");
  CHECK_FALSE(std::filesystem::exists("/tmp/" + name));
  const std::string files = "[open(str(i), 'wb').write(bytes(1 << 20)) for i in range(30)]";
  const std::string large = "open('large', 'wb').write(bytes(20 << 20))";
  CHECK(successes(inside, {files}) == files + " -> No space left on device;");
  CHECK(successes(inside, {large}) == large + " -> File too large;");
}

TEST_CASE("a program inherits nothing") {
  NEED_SANDBOX(inside);
  const int held = ::open("/etc/passwd", O_RDONLY);  // without O_CLOEXEC
  ::setenv("SLM_SECRET", "s", 1);
  const std::string source =
      "import os\n"
      "def fails(i):\n  try: os.fstat(i)\n  except OSError: return True\n"
      "def f(x): return '%s %s %s' % (sum(not fails(i) for i in range(64)), 'SLM_SECRET' in os.environ, os.read(0, "
      "1))\n";
  const Verdict verdict = verdict_of(inside, source, "def check(candidate):\n    raise ValueError(candidate(1))\n");
  CHECK(verdict.detail == "ValueError: 5 False b''");  // standard files, and the two ends of the protocol's pipes
  ::unsetenv("SLM_SECRET");
  ::close(held);
}

TEST_CASE("missing programs are reported") {
  CHECK(error_id([] { Sandbox({.python = "python-that-is-not-here"}); }) == "sandbox.no-python");
  CHECK(error_id([] { Sandbox({.python = "true"}); }) == "sandbox.no-python");
  const slm::testing::TemporaryFolder folder;
  const std::string path = std::getenv("PATH");
  const auto with_bwrap = [&](const std::string& script) {
    const auto file = folder.write("bwrap", "#!/bin/sh\n" + script + "\n");
    for (const auto& seen : {folder.path(), file}) {  // also by user 65534, as which root may start it
      std::filesystem::permissions(seen, std::filesystem::perms{0755});
    }
    ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
    const std::string id = error_id([] { Sandbox({.python = "/usr/bin/python3"}); });
    ::setenv("PATH", path.c_str(), 1);
    return id;
  };
  if (!std::filesystem::exists("/usr/bin/python3")) return;
  CHECK(with_bwrap("echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1") ==
        "sandbox.unavailable");
  CHECK(with_bwrap("echo 'bwrap: execvp /home/me/python: No such file or directory' >&2; exit 1") == "sandbox.broken");
  ::setenv("PATH", folder.path().string().c_str(), 1);
  std::filesystem::remove(folder.path() / "bwrap");
  CHECK(error_id([] { Sandbox({.python = "/usr/bin/python3"}); }) == "sandbox.no-bubblewrap");
  ::setenv("PATH", path.c_str(), 1);
}

TEST_CASE("the sandbox needs no privileges") {
  if (::geteuid() != 0) return;  // then the other cases have tested it
  if (sandbox() == nullptr) return;
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    if (::setgid(65534) == 0 && ::setuid(65534) == 0) {
      try {
        SandboxOptions options = options_of();
        options.python = "/usr/bin/python3";
        const Sandbox own(options);
        const bool right = verdict_of(own, "def f(x): return x + 1").outcome == Outcome::passed;
        const bool kept = successes(own, {"open('/etc/passwd')", "open('/planted', 'w')", "os.fork()"}).empty();
        status = right && kept ? 0 : 2;
      } catch (const slm::Error& error) {
        WARN("SKIPPED: as user 65534, " << error.what());
        status = 0;
      }
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
