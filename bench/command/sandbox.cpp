#include "bench/command/sandbox.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "bench/command/sandbox_filter.hpp"
#include "bench/command/sandbox_python.hpp"
#include "bench/command/sandbox_warden.hpp"
#include "bench/samples.hpp"
#include "slm/io/json.hpp"

namespace slm::bench {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int file = -1) : file_(file) {}
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  int get() const { return file_; }

 private:
  int file_;
};

Error no_process(const char* what) {
  return Error("sandbox.no-process", text("the system refuses ", what, ": ", std::strerror(errno)),
               "Lower --jobs, or raise the limits of processes and open files");
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw no_process("a pipe");
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
  }
  Descriptor reading, writing;
};

/// A file in memory, read from its start.
Descriptor memory_file(std::string_view content) {
  Descriptor file(::memfd_create("slm", MFD_CLOEXEC));
  if (file.get() < 0) throw no_process("a file in memory");
  while (!content.empty()) {
    const ssize_t count = ::write(file.get(), content.data(), content.size());
    if (count <= 0) throw no_process("a file in memory");
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string read_to_end(int file) {
  std::string content;
  char piece[4096];
  for (ssize_t count = 0; (count = ::read(file, piece, sizeof piece)) > 0;) {
    content.append(piece, static_cast<std::size_t>(count));
  }
  return content;
}

/// Standard output of a program on the PATH; empty when it fails.
std::string output_of(std::vector<const char*> arguments) {
  Pipe pipe;
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe.writing.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int refused =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, const_cast<char* const*>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) return "";
  pipe.writing = Descriptor();
  std::string output = read_to_end(pipe.reading.get());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status == 0 ? output : "";
}

bool is_inside(const std::string& path, const std::string& folder) {
  return path == folder || path.compare(0, folder.size() + 1, folder + "/") == 0;
}

/// The tree that shows these paths and no others: the folders on the way to them, and the links of /lib and the like.
std::vector<TreeEntry> tree_of(const std::vector<std::string>& readable) {
  std::vector<TreeEntry> tree;
  std::set<std::string> made;
  for (const std::string& path : readable) {
    std::string parent;
    for (const auto& part : std::filesystem::path(path).parent_path().relative_path()) {
      parent += "/" + part.string();
      if (made.insert(parent).second) tree.push_back({TreeEntry::Kind::folder, parent, "", ""});
    }
    std::error_code ignored;
    if (std::filesystem::is_symlink(path, ignored)) {
      tree.push_back({TreeEntry::Kind::link, path, "", std::filesystem::read_symlink(path).string()});
    } else {
      const bool folder = std::filesystem::is_directory(path, ignored);
      tree.push_back(
          {folder ? TreeEntry::Kind::shared_folder : TreeEntry::Kind::shared_file, path, "/outside" + path, ""});
    }
  }
  return tree;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? text("SIG", name) : text("signal ", number);
}

constexpr std::string_view python_places = R"py(
import json, os, sys
print(json.dumps([sys.executable, "%d.%d.%d" % sys.version_info[:3], sys.version_info >= (3, 8),
                  [os.path.dirname(os.path.realpath(sys.executable)), sys.prefix, sys.base_prefix, sys.exec_prefix]]))
)py";

}  // namespace

struct Sandbox::Run {
  WardenReport report;
  std::string verdict;
  double seconds;
};

Sandbox::Sandbox(const SandboxOptions& options) : options_(options) {
  find_python();
  if (system_call_filter().empty()) {
    throw Error("sandbox.unavailable", "the filter of system calls is written for x86-64 and aarch64 only",
                "Judge the samples file on such a machine");
  }
  landlock_ = landlock_version();
  std::string refused = "not tried";
  if (options_.try_namespaces) {
    namespaces_ = true;
    const WardenReport report = run_in({"", "", "", ""}, -1).report;
    namespaces_ = report.failed_step == nullptr;
    if (!namespaces_) refused = text(report.failed_step, ": ", std::strerror(report.error));
  }
  if (!namespaces_ && landlock_ < 3) {
    throw Error("sandbox.unavailable",
                text("this system grants neither namespaces (", refused, ") nor Landlock of version 3 or later"),
                "Judge the samples file on a machine that does, or in a container that is allowed user namespaces");
  }
  if (!namespaces_ && !options_.accept_weaker) {
    throw Error("sandbox.weaker",
                text("this system grants no namespaces (", refused,
                     "), so that programs would be kept by Landlock and a filter of system calls alone"),
                "Allow user namespaces, or accept that with --accept-weaker-sandbox");
  }
  layers_ = text(namespaces_ ? "namespaces, own file tree, " : "no namespaces, ",
                 landlock_ > 0 ? text("Landlock ", landlock_, ", ") : "no Landlock, ", "seccomp, limits");
  see_that_it_works();
}

void Sandbox::find_python() {
  const std::string answer = output_of({options_.python.c_str(), "-I", "-c", std::string(python_places).c_str()});
  const Json places = Json::parse(answer, nullptr, false);
  if (!places.is_array() || places.size() != 4 || !places[2].get<bool>()) {
    throw Error("sandbox.no-python", text("'", options_.python, "' is no Python of version 3.8 or later"),
                "Install python3, or name one with --python");
  }
  python_ = places[0].get<std::string>();
  python_version_ = places[1].get<std::string>();
  readable_ = {"/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"};
  for (const Json& place : places[3]) readable_.push_back(place.get<std::string>());
  // Of Python's folders only those count that show nothing else; one inside another is there already.
  const char* home = std::getenv("HOME");
  std::vector<std::string> kept;
  std::error_code ignored;
  for (const std::string& path : readable_) {
    const bool too_wide = path == "/" || path == "/etc" || (home != nullptr && is_inside(home, path));
    const bool there =
        std::any_of(kept.begin(), kept.end(), [&](const std::string& other) { return is_inside(path, other); });
    if (!too_wide && !there && std::filesystem::exists(path, ignored)) kept.push_back(path);
  }
  readable_ = std::move(kept);
}

void Sandbox::see_that_it_works() const {
  const Descriptor errors = memory_file("");
  const Run run =
      run_in({"def next(x):\n  return x + 1\n", "next", "", "def check(candidate):\n  assert candidate(1) == 2\n"},
             errors.get());
  if (run.verdict.find("\"passed\"") != std::string::npos) return;
  ::lseek(errors.get(), 0, SEEK_SET);
  std::string said = read_to_end(errors.get());
  if (run.report.timed_out) said = text("it takes longer than ", options_.seconds, " s");
  if (run.report.failed_step != nullptr) said = text(run.report.failed_step, ": ", std::strerror(run.report.error));
  throw Error("sandbox.broken",
              text("a right program does not pass in the sandbox: ", said.empty() ? run.verdict : said),
              "Name another Python with --python: one whose files lie in folders of their own");
}

Sandbox::Run Sandbox::run_in(const Program& program, int errors) const {
  const Descriptor job = memory_file(Json{
      {"source", program.source},
      {"entry_point", program.entry_point},
      {"helpers", program.helpers},
      {"test", program.test}}.dump(-1, ' ', true, Json::error_handler_t::replace));
  Pipe verdict, report;
  const std::string judge_text = std::string(python::wire) + python::judge;
  const std::string program_text = std::string(python::wire) + python::program;
  WardenPlan plan;
  plan.namespaces = namespaces_;
  plan.landlock = landlock_;
  plan.readable = readable_;
  if (namespaces_) {
    plan.tree = tree_of(readable_);
    plan.writable = {"/tmp"};
  }
  plan.filter = system_call_filter();
  plan.user_map = text("65534 ", ::geteuid(), " 1");
  plan.group_map = text("65534 ", ::getegid(), " 1");
  plan.folder_options = text("mode=700,nr_inodes=4096,size=", options_.folder_bytes);
  plan.judge = {python_.c_str(), "-I", "-X", "utf8", "-c", judge_text.c_str(), nullptr};
  plan.program = {python_.c_str(), "-I", "-X", "utf8", "-c", program_text.c_str(), nullptr};
  plan.job = job.get();
  plan.verdict = verdict.writing.get();
  plan.report = report.writing.get();
  plan.errors = errors;
  plan.processor_seconds = options_.processor_seconds;
  plan.seconds = options_.seconds;
  plan.memory_bytes = options_.memory_bytes;
  plan.file_bytes = options_.folder_bytes;

  const double began = seconds();
  Run run{};
  const pid_t warden = start_warden(plan);
  if (warden < 0) {
    run.report.failed_step = "start a process in them";
    run.report.error = errno;
    return run;
  }
  // The warden keeps the time. Should it fail to, its end is the end of all inside.
  pollfd reported{report.reading.get(), POLLIN, 0};
  const int patience = options_.seconds * 1000 + 5000;
  while (::poll(&reported, 1, patience) < 0 && errno == EINTR) continue;
  run.report.timed_out = true;
  ::fcntl(report.reading.get(), F_SETFL, O_NONBLOCK);
  (void)!::read(report.reading.get(), &run.report, sizeof run.report);
  ::kill(warden, SIGKILL);
  while (::waitpid(warden, nullptr, 0) < 0 && errno == EINTR) continue;
  run.seconds = seconds() - began;
  ::fcntl(verdict.reading.get(), F_SETFL, O_NONBLOCK);  // one write of the judge, complete since it has ended
  run.verdict = read_to_end(verdict.reading.get());
  return run;
}

Verdict Sandbox::run(const Program& program) const {
  const Run run = run_in(program, -1);
  const WardenReport& report = run.report;
  if (report.failed_step != nullptr) {
    throw Error(
        "sandbox.no-process",
        text("a process in the sandbox did not start (", report.failed_step, ": ", std::strerror(report.error), ")"),
        "Lower --jobs, or raise the limits of processes and open files");
  }
  if (report.timed_out) return {Outcome::timed_out, text("after ", options_.seconds, " s"), run.seconds};
  const Json verdict = Json::parse(run.verdict, nullptr, false);
  const std::string word = verdict.is_object() ? verdict.value("verdict", "") : "";
  if (word == "passed") return {Outcome::passed, "", run.seconds};
  if (word == "failed") return {Outcome::failed, verdict.value("detail", ""), run.seconds};
  // The program ended before its test did, or took the judge with it.
  const int status = report.program_status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == python::out_of_memory) {
    return {Outcome::out_of_memory, text("of ", options_.memory_bytes >> 20, " MiB"), run.seconds};
  }
  if (WIFEXITED(status)) {
    return {Outcome::failed, text("it ended (status ", WEXITSTATUS(status), ") before its test did"), run.seconds};
  }
  if (WTERMSIG(status) == SIGXCPU || report.processor_seconds >= options_.processor_seconds) {
    return {Outcome::timed_out, text("after ", options_.processor_seconds, " s of processor time"), run.seconds};
  }
  if (WTERMSIG(status) == SIGKILL && report.program_outlived) {
    return {Outcome::failed, "the test did not end: its connection to the program was cut", run.seconds};
  }
  return {Outcome::crashed, signal_name(WTERMSIG(status)), run.seconds};
}

}  // namespace slm::bench
