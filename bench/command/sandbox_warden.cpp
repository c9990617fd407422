#include "bench/command/sandbox_warden.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace slm::bench {

namespace {

// Landlock, newer than the headers of the system that this may be built on.
struct Ruleset {
  std::uint64_t files, network, scope;
};
struct [[gnu::packed]] PathRule {
  std::uint64_t allowed;
  std::int32_t folder;
};
constexpr std::uint64_t file_execute = 1, file_write = 1 << 1, file_read = 1 << 2, folder_read = 1 << 3,
                        make_device = 1 << 6 | 1 << 11, make_socket = 1 << 9, file_truncate = 1 << 14;

/// The one report; the process ends here when a step fails.
struct Reporter {
  int file;
  WardenReport report{};

  void send() const {
    const WardenReport copy = report;
    (void)!::write(file, &copy, sizeof copy);
  }
  [[noreturn]] void fail(const char* step) {
    report.failed_step = step;
    report.error = errno;
    send();
    ::_exit(125);
  }
  void need(bool done, const char* step) {
    if (!done) fail(step);
  }
};

pid_t fork_alone(unsigned long flags) {
  return static_cast<pid_t>(::syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (unsigned file = first; file < limit.rlim_cur; ++file) ::close(static_cast<int>(file));
}

bool write_file(const char* path, std::string_view content) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool done = ::write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  ::close(file);
  return done;
}

/// A file tree in memory that holds the plan's entries, read-only, and an empty /tmp.
void build_tree(const WardenPlan& plan, Reporter& reporter) {
  const auto need = [&](int result, const char* step) { reporter.need(result == 0, step); };
  need(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "keep mounts private");
  need(::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755"), "mount a tree in memory");
  need(::mkdir("/tmp/outside", 0700), "make a folder in it");
  need(static_cast<int>(::syscall(SYS_pivot_root, "/tmp", "/tmp/outside")), "enter the tree");
  need(::chdir("/"), "enter the tree");
  need(::mkdir("/tmp", 0700), "make /tmp");
  need(::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, plan.folder_options.c_str()), "mount /tmp");
  for (const TreeEntry& entry : plan.tree) {
    const char* path = entry.path.c_str();
    if (entry.kind == TreeEntry::Kind::link) {
      need(::symlink(entry.target.c_str(), path), "make a link");
      continue;
    }
    if (entry.kind == TreeEntry::Kind::shared_file) {
      const int file = ::open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
      reporter.need(file >= 0, "make a file to mount on");
      ::close(file);
    } else {
      reporter.need(::mkdir(path, 0755) == 0 || errno == EEXIST, "make a folder");
      if (entry.kind == TreeEntry::Kind::folder) continue;
    }
    need(::mount(entry.outside.c_str(), path, nullptr, MS_BIND | MS_REC, nullptr), "share Python's files");
    mount_attr attributes{};
    attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    need(static_cast<int>(::syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes)),
         "make Python's files read-only");
  }
  need(::umount2("/outside", MNT_DETACH), "leave the system's tree");
  need(::rmdir("/outside"), "leave the system's tree");
  need(::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr),
       "make the tree read-only");
}

void apply_landlock(const WardenPlan& plan, Reporter& reporter) {
  const int version = plan.landlock;
  const int file_rights = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
  Ruleset rules{};
  rules.files = (std::uint64_t{1} << file_rights) - 1;
  if (version >= 4) rules.network = 3;  // bind, connect
  if (version >= 6) rules.scope = 3;    // abstract sockets, signals
  const std::size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  const int set = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, size, 0));
  reporter.need(set >= 0, "make Landlock's rules");
  const auto allow = [&](const std::string& path, std::uint64_t rights) {
    const int place = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (place < 0) return;  // what is not there needs no rule
    struct stat status {};
    ::fstat(place, &status);
    if (!S_ISDIR(status.st_mode)) rights &= file_execute | file_write | file_read | file_truncate;
    const PathRule rule{rights & rules.files, place};
    reporter.need(::syscall(SYS_landlock_add_rule, set, 1, &rule, 0) == 0, "add a rule of Landlock");
    ::close(place);
  };
  for (const std::string& path : plan.readable) allow(path, file_execute | file_read | folder_read);
  for (const std::string& path : plan.writable) allow(path, rules.files & ~(make_device | make_socket | file_execute));
  reporter.need(::syscall(SYS_landlock_restrict_self, set, 0) == 0, "apply Landlock");
  ::close(set);
}

void limit(int resource, rlim_t soft, rlim_t hard, Reporter& reporter) {
  rlimit value{};
  ::syscall(SYS_prlimit64, 0, resource, nullptr, &value);
  value = {std::min(soft, value.rlim_max), std::min(hard, value.rlim_max)};  // it may have been lowered outside
  reporter.need(::syscall(SYS_prlimit64, 0, resource, &value, nullptr) == 0, "set a limit");
}

/// Becomes Python. files: the descriptors it keeps, as 0, 1, 2, ...
[[noreturn]] void become(const WardenPlan& plan, const std::vector<const char*>& arguments, const int* files, int count,
                         pid_t warden, Reporter& reporter) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != warden) ::_exit(125);  // it ended before that

  constexpr int parking = 100;
  const auto park = [&](int file) {
    const int parked = ::fcntl(file, F_DUPFD, parking);
    reporter.need(parked >= 0, "keep a descriptor");
    return parked;
  };
  int kept[8] = {};
  for (int i = 0; i < count; ++i) kept[i] = park(files[i]);
  const int report = park(reporter.file);
  for (int i = 0; i < count; ++i) reporter.need(::dup2(kept[i], i) >= 0, "keep a descriptor");
  reporter.need(::dup3(report, count, O_CLOEXEC) >= 0, "keep a descriptor");
  reporter.file = count;  // closed when Python starts: it never sees it
  close_from(static_cast<unsigned>(count) + 1);

  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  const auto seconds = static_cast<rlim_t>(plan.processor_seconds);
  limit(RLIMIT_CPU, seconds, seconds + 1, reporter);
  limit(RLIMIT_AS, plan.memory_bytes, plan.memory_bytes, reporter);
  limit(RLIMIT_FSIZE, plan.file_bytes, plan.file_bytes, reporter);
  limit(RLIMIT_NOFILE, 64, 64, reporter);
  limit(RLIMIT_CORE, 0, 0, reporter);
  limit(RLIMIT_MEMLOCK, 0, 0, reporter);

  reporter.need(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "give up new privileges");
  if (plan.landlock > 0) apply_landlock(plan, reporter);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct no_capabilities[2] = {};
  reporter.need(::syscall(SYS_capset, &header, no_capabilities) == 0, "give up capabilities");
  const sock_fprog filter{static_cast<unsigned short>(plan.filter.size()),
                          const_cast<sock_filter*>(plan.filter.data())};
  reporter.need(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0, "filter system calls");

  char* const no_environment[] = {nullptr};
  ::execve(arguments[0], const_cast<char* const*>(arguments.data()), no_environment);
  reporter.fail("start Python");
}

double monotonic_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Waits for the judge, and no longer than the plan says. The program then ends too.
void watch(const WardenPlan& plan, pid_t judge, pid_t program, Reporter& reporter) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const double deadline = monotonic_seconds() + plan.seconds;
  bool judge_runs = true, program_runs = true;
  const auto reap = [&](int options) {
    int status = 0;
    rusage used{};
    for (pid_t pid = 0; (pid = ::wait4(-1, &status, options, &used)) > 0;) {
      if (pid == judge) judge_runs = false;
      if (pid != program) continue;
      program_runs = false;
      reporter.report.program_status = status;
      reporter.report.processor_seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                                          1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
  };
  for (reap(WNOHANG); judge_runs; reap(WNOHANG)) {
    const double left = deadline - monotonic_seconds();
    if (left <= 0) {
      reporter.report.timed_out = true;
      break;
    }
    const timespec wait{static_cast<time_t>(left),
                        static_cast<long>((left - static_cast<double>(static_cast<time_t>(left))) * 1e9)};
    ::sigtimedwait(&child, nullptr, &wait);
  }
  if (judge_runs) ::kill(judge, SIGKILL);
  reporter.report.program_outlived = program_runs;
  if (program_runs) ::kill(program, SIGKILL);
  reap(0);
}

[[noreturn]] void run_warden(const WardenPlan& plan) {
  Reporter reporter{plan.report};
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);

  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  reporter.need(nothing >= 0, "open /dev/null");
  if (plan.namespaces) {
    reporter.need(write_file("/proc/self/setgroups", "deny"), "deny groups");
    reporter.need(write_file("/proc/self/uid_map", plan.user_map), "map the user");
    reporter.need(write_file("/proc/self/gid_map", plan.group_map), "map the group");
    build_tree(plan, reporter);
    reporter.need(::chdir("/tmp") == 0, "enter /tmp");
  } else {
    reporter.need(::chdir("/") == 0, "enter /");
  }

  int requests[2], replies[2];
  reporter.need(::pipe2(requests, O_CLOEXEC) == 0 && ::pipe2(replies, O_CLOEXEC) == 0, "make pipes");
  const int errors = plan.errors >= 0 ? plan.errors : nothing;
  const pid_t self = ::getpid();
  const pid_t program = fork_alone(0);
  reporter.need(program >= 0, "start a process");
  if (program == 0) {
    const int files[] = {nothing, nothing, errors, requests[0], replies[1]};
    become(plan, plan.program, files, 5, self, reporter);
  }
  const pid_t judge = fork_alone(0);
  if (judge < 0) {
    ::kill(program, SIGKILL);
    reporter.fail("start a process");
  }
  if (judge == 0) {
    const int files[] = {nothing, nothing, errors, requests[1], replies[0], plan.job, plan.verdict};
    become(plan, plan.judge, files, 7, self, reporter);
  }
  for (const int file : {requests[0], requests[1], replies[0], replies[1]}) ::close(file);
  watch(plan, judge, program, reporter);
  reporter.send();
  ::_exit(0);
}

}  // namespace

pid_t start_warden(const WardenPlan& plan) {
  const unsigned long walls = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  const pid_t pid = fork_alone(plan.namespaces ? walls : 0);
  if (pid == 0) run_warden(plan);
  return pid;
}

int landlock_version() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1);
  return version > 0 ? static_cast<int>(version) : 0;
}

}  // namespace slm::bench
