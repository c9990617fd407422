// Programs that try to get out, to stay, to take everything, or to pass without being right: none does.
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
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "slm/io/json.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm::bench;
using slm::testing::error_id;

SandboxOptions options_of(bool namespaces, int seconds = 60) {
  return {.processor_seconds = 1, .seconds = seconds, .accept_weaker = true, .try_namespaces = namespaces};
}

/// The sandbox with all its walls, and the one without namespaces; null where this system does not grant it.
const Sandbox* sandbox(bool namespaces) {
  static const auto make = [](bool wanted) -> std::unique_ptr<Sandbox> {
    try {
      auto made = std::make_unique<Sandbox>(options_of(wanted));
      const bool granted = made->layers().find("no namespaces") == std::string::npos;
      if (granted == wanted) return made;
      WARN("SKIPPED: no namespaces here (" << made->layers() << ")");
    } catch (const slm::Error& error) {
      WARN("SKIPPED: " << error.what());
    }
    return nullptr;
  };
  static const std::unique_ptr<Sandbox> full = make(true), weaker = make(false);
  return (namespaces ? full : weaker).get();
}

constexpr const char* test_of_next = "def check(candidate):\n    assert candidate(1) == 2\n";

Verdict verdict_of(const Sandbox& inside, const std::string& source, const std::string& test = test_of_next) {
  return inside.run({source, "f", "", test});
}

/// What f(1) returns, as text.
std::string answer_of(const Sandbox& inside, const std::string& source) {
  const Verdict verdict = verdict_of(inside, source, "def check(candidate):\n    raise ValueError(candidate(1))\n");
  return verdict.detail;
}

/// Of statements that must all fail for want of a permission or of a file: those that did not, with what they did.
std::string successes(const Sandbox& inside, const std::vector<std::string>& attempts) {
  const std::string source = R"py(
def f(x):
    wrong = ''
    for attempt in attempts:
        try: exec(attempt)
        except (PermissionError, FileNotFoundError): continue
        except OSError as error:
            if error.errno == 30: continue  # a read-only file system
            name = os.strerror(error.errno)
        except Exception as error: name = type(error).__name__
        else: name = 'done'
        wrong += attempt + ' -> ' + name + ';'
    return wrong
)py";
  const std::string answer =
      answer_of(inside, "import os, sys\nattempts = " + slm::Json(attempts).dump() + "\n" + source);
  const std::string prefix = "ValueError";
  REQUIRE(answer.compare(0, prefix.size(), prefix) == 0);
  return answer.size() > prefix.size() ? answer.substr(prefix.size() + 2) : "";
}

/// Whether a process that one of the runs started is left. All orphans become this process's children.
struct NothingLeft {
  NothingLeft() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~NothingLeft() {
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
    CHECK(errno == ECHILD);
  }
};

#define FOR_EACH_SANDBOX(inside)                 \
  const bool namespaces = GENERATE(true, false); \
  if (sandbox(namespaces) == nullptr) return;    \
  const Sandbox& inside = *sandbox(namespaces);  \
  INFO(inside.layers());                         \
  const NothingLeft nothing_left

TEST_CASE("a right program passes, a wrong one fails with its last line") {
  FOR_EACH_SANDBOX(inside);
  CHECK(verdict_of(inside, "def f(x): return x + 1").outcome == Outcome::passed);
  Verdict verdict = verdict_of(inside, "def f(x): return x");
  CHECK(verdict.outcome == Outcome::failed);
  CHECK(verdict.detail == "AssertionError: assert candidate(1) == 2");
  CHECK(verdict_of(inside, "def f(x): return {}['a']").detail == "KeyError: 'a'");
  CHECK(verdict_of(inside, "def f(x)").detail == "SyntaxError: expected ':' (<program>, line 1)");
  CHECK(verdict_of(inside, "def g(x): return 2").detail == "KeyError: 'f'");
  CHECK(verdict_of(inside, "def f(x): return f(x)").detail == "RecursionError: maximum recursion depth exceeded");
  CHECK(verdict_of(inside, "def f(x): return x + 1", "def check(candidate): missing").outcome == Outcome::failed);
  CHECK(verdict_of(inside, "def f(x): return x + 1", "no test").outcome == Outcome::failed);
}

TEST_CASE("values arrive as what they are") {
  const bool all_equal = GENERATE(true, false);
  if (sandbox(true) == nullptr && sandbox(false) == nullptr) return;
  const Sandbox& inside = *(sandbox(true) != nullptr ? sandbox(true) : sandbox(false));
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
  // the control: the same test with one value changed
  CHECK(verdict_of(inside, source, all_equal ? test : test + "    assert candidate('scale', 3) == 4\n").detail ==
        (all_equal ? "" : "AssertionError: assert candidate('scale', 3) == 4"));
}

TEST_CASE("a program passes by being right only") {
  FOR_EACH_SANDBOX(inside);
  const std::string wrong = "def f(x): return 7\n";
  const std::string sources[] = {
      wrong + "import os\nos._exit(0)",
      wrong + "import sys\nsys.exit(0)",
      "import os\ndef f(x): os._exit(0)",
      "def f(x): raise SystemExit(0)",
      wrong + "print('{\"verdict\": \"passed\"}')",
      wrong +
          "import os\nfor file in range(64):\n  try: os.write(file, b'{\"verdict\": \"passed\"}\\n' * 9)\n  except "
          "OSError: pass",
      wrong +
          "import builtins, json\nbuiltins.AssertionError = None\nbuiltins.all = lambda x: True\njson.dumps = lambda "
          "x: '{}'",
      wrong + "import json\njson.dumps = lambda x: '{\"verdict\": \"passed\", \"value\": [\"opaque\"]}'",
      "class Equal:\n  def __eq__(self, other): return True\ndef f(x): return Equal()",
      "class Equal(int):\n  def __eq__(self, other): return True\ndef f(x): return Equal(7)",
      wrong + "def check(candidate): pass",
      wrong + "import sys\nsys._getframe(1).f_globals['serve'] = None\nsys.modules.clear()",
      "import os\ndef f(x): os.write(4, b'[' * 200000 + b'\\n')",
      "import os\ndef f(x): os.write(4, b'{\"value\": [\"range\", [0, [\"int\", \"0x7fffffffffffffff\"], 1]]}\\n')",
      "import os\ndef f(x): os.close(4)",
  };
  for (const std::string& source : sources) {
    const Verdict verdict = verdict_of(inside, source);
    INFO(source << " -> " << verdict.detail);
    CHECK(verdict.outcome == Outcome::failed);
    CHECK_FALSE(verdict.detail.empty());
  }
}

TEST_CASE("what takes everything is stopped") {
  FOR_EACH_SANDBOX(inside);
  CHECK(verdict_of(inside, "def f(x):\n  while True: pass").outcome == Outcome::timed_out);
  CHECK(verdict_of(inside, "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass").outcome ==
        Outcome::timed_out);
  CHECK(verdict_of(inside, "def f(x): return len([0] * (1 << 40))").outcome == Outcome::out_of_memory);
  CHECK(verdict_of(inside, "def f(x):\n  held = []\n  while True: held.append(bytearray(1 << 20))").outcome ==
        Outcome::out_of_memory);
  CHECK(verdict_of(inside, "import ctypes\nctypes.string_at(0)").detail == "SIGSEGV");
  CHECK(verdict_of(inside, "import ctypes\nctypes.string_at(0)").outcome == Outcome::crashed);
  // output goes nowhere; a result without end is cut off
  CHECK(
      verdict_of(inside,
                 "import sys\ndef f(x):\n  for i in range(2000): print('x' * 10000), sys.stderr.write('y' * 10000)\n  "
                 "return x + 1")
          .outcome == Outcome::passed);
  CHECK(verdict_of(inside, "def f(x): return 'x' * (20 << 20)").detail == "its result is larger than 16 MiB");
  CHECK(verdict_of(inside, "import os\ndef f(x):\n  while True: os.write(4, b'x' * 65536)").outcome != Outcome::passed);
}

TEST_CASE("waiting is timed by the clock") {
  FOR_EACH_SANDBOX(inside);
  const Sandbox impatient(options_of(namespaces, 8));
  const Verdict verdict = verdict_of(impatient, "import time\ndef f(x): time.sleep(1000)");
  CHECK(verdict.outcome == Outcome::timed_out);
  CHECK(verdict.seconds < 30);
}

TEST_CASE("no process, thread or signal leaves") {
  FOR_EACH_SANDBOX(inside);
  CHECK(successes(inside, {"os.fork()", "os.posix_spawn(sys.executable, ['python3', '-c', ''], {})", "os.kill(-1, 9)",
                           "os.kill(1, 9)", "os.kill(os.getppid(), 9)", "os.kill(os.getpid() + 1, 9)", "os.setsid()",
                           "__import__('subprocess').run([sys.executable, '-c', ''])"}) == "");
  const std::string thread = "__import__('threading').Thread(target=print).start()";
  CHECK(successes(inside, {thread}) == thread + " -> RuntimeError;");
  // a fork bomb, and a daemon by the book
  CHECK(verdict_of(inside, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass").outcome ==
        Outcome::timed_out);
  CHECK(
      verdict_of(inside, "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(1000)\n")
          .outcome == Outcome::failed);
}

/// A socket on the loopback that listens, and whether anyone came.
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
  FOR_EACH_SANDBOX(inside);
  const Listener listener;
  const std::string connect =
      "__import__('socket').create_connection(('127.0.0.1', " + std::to_string(listener.port) + "), 1)";
  CHECK(successes(inside, {connect, "__import__('socket').socketpair()"}) == "");
  CHECK_FALSE(listener.was_called());
  // the control: outside, the same line connects
  CHECK(std::system(("python3 -c \"" + connect + "\"").c_str()) == 0);
  CHECK(listener.was_called());
}

TEST_CASE("files: Python's are read-only, a small folder is there, nothing else") {
  FOR_EACH_SANDBOX(inside);
  const slm::testing::TemporaryFolder folder;
  const auto secret = folder.write("secret", "s");
  const std::string planted = (folder.path() / "planted").string();
  const char* home = std::getenv("HOME");
  std::vector<std::string> attempts = {
      "os.listdir('" + std::string(home != nullptr ? home : "/root") + "')",
      "open('" + planted + "', 'w')",
      "open('/usr/lib/planted', 'w')",
      "os.chmod('" + secret.string() + "', 0)",
      "os.utime('" + secret.string() + "')",
      "os.remove('" + secret.string() + "')",
      "os.truncate('" + secret.string() + "', 0)",
      "open('" + secret.string() + "')",
  };
  for (const char* path : {"/etc/passwd", "/etc/hostname", "/proc/1/environ", "/proc/self/mem", "/dev/mem"}) {
    attempts.push_back("open('" + std::string(path) + "')");
  }
  CHECK(successes(inside, attempts) == "");
  CHECK_FALSE(std::filesystem::exists(planted));
  CHECK(std::filesystem::file_size(secret) == 1);
  CHECK_FALSE(std::filesystem::exists("/usr/lib/planted"));
}

TEST_CASE("the folder of a program is small, and its links lead nowhere") {
  FOR_EACH_SANDBOX(inside);
  const slm::testing::TemporaryFolder folder;
  const auto secret = folder.write("secret", "s");
  if (!namespaces) {
    CHECK(successes(inside, {"open('/tmp/note', 'w')", "open('/dev/shm/note', 'w')", "os.mkdir('/tmp/folder')"}) == "");
    return;
  }
  const std::string use = "assert os.listdir('/tmp') == [] and os.getcwd() == '/tmp'; open('note', 'w').write('a')";
  CHECK(successes(inside, {use}) == use + " -> done;");
  CHECK_FALSE(std::filesystem::exists("/tmp/note"));
  CHECK(successes(inside, {"os.symlink('" + secret.string() + "', '1'); open('1')",
                           "os.symlink('/usr/lib', '2'); open('2/planted', 'w')"}) == "");
  CHECK(successes(inside, {"os.symlink('/', '3'); open('3/planted', 'w')",
                           "os.symlink('..', '4'); os.mkdir('4/planted')"}) == "");
  // many files, many names, one large file: the folder is full before the machine is
  const std::string files = "[open(str(i), 'wb').write(bytes(1 << 20)) for i in range(30)]";
  const std::string names = "[open(str(i), 'wb').close() for i in range(10000)]";
  const std::string large = "open('large', 'wb').write(bytes(20 << 20))";
  CHECK(successes(inside, {files}) == files + " -> No space left on device;");
  CHECK(successes(inside, {names}) == names + " -> No space left on device;");
  CHECK(successes(inside, {large}) == large + " -> File too large;");
}

TEST_CASE("a program inherits nothing") {
  FOR_EACH_SANDBOX(inside);
  const int held = ::open("/etc/passwd", O_RDONLY);  // without O_CLOEXEC
  ::setenv("SLM_SECRET", "s", 1);
  const std::string source =
      "import os\n"
      "def fails(i):\n  try: os.fstat(i)\n  except OSError: return True\n"
      "def f(x): return '%s %s %s' % ([i for i in range(64) if not fails(i)], 'SLM_SECRET' in os.environ, os.read(0, "
      "1))\n";
  CHECK(answer_of(inside, source) == "ValueError: [0, 1, 2, 3, 4] False b''");
  ::unsetenv("SLM_SECRET");
  ::close(held);
}

TEST_CASE("a missing layer is said, and not done without") {
  CHECK(error_id([] { Sandbox({.python = "python-that-is-not-here"}); }) == "sandbox.no-python");
  CHECK(error_id([] { Sandbox({.python = "true"}); }) == "sandbox.no-python");
  const std::string id = error_id([] { Sandbox({.try_namespaces = false}); });
  CHECK((id == "sandbox.weaker" || id == "sandbox.unavailable"));
}

TEST_CASE("it needs no privileges") {
  if (::geteuid() != 0) return;  // then the other cases have shown it
  for (const bool namespaces : {true, false}) {
    if (sandbox(namespaces) == nullptr) continue;
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 1;
      if (::setgid(65534) == 0 && ::setuid(65534) == 0) {
        try {
          const Sandbox inside(options_of(namespaces));
          const bool right = verdict_of(inside, "def f(x): return x + 1").outcome == Outcome::passed;
          const bool kept = successes(inside, {"open('/etc/passwd')"}).empty();
          status = right && kept ? 0 : 2;
        } catch (const slm::Error& error) {
          WARN(error.what());
        }
      }
      ::_exit(status);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("killing slm kills what runs inside") {
  FOR_EACH_SANDBOX(inside);
  const pid_t child = ::fork();
  if (child == 0) {
    verdict_of(inside, "import time\ndef f(x): time.sleep(1000)");
    ::_exit(0);
  }
  ::usleep(700'000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  // its orphans are this process's now, and about to end
  pid_t ended = 0;
  for (int round = 0; round < 200 && (ended = ::waitpid(-1, nullptr, WNOHANG)) >= 0; ++round) {
    if (ended == 0) ::usleep(20'000);
  }
}

}  // namespace
