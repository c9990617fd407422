// The warden: the process between slm and a program in the sandbox. It builds the walls, starts program and judge
// inside, and ends both in time.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace slm::bench {

/// An entry of the file tree that the program sees. Everything else does not exist there.
struct TreeEntry {
  enum class Kind { folder, shared_folder, shared_file, link };
  Kind kind;
  std::string path;     // "/usr/lib"
  std::string outside;  // shared: where it is found while the walls are built
  std::string target;   // link
};

/// Everything the warden needs, made before it starts: it shares memory with threads that may hold any lock, so that
/// it may make system calls and nothing else.
struct WardenPlan {
  bool namespaces = true;
  int landlock = 0;  // the kernel's version; 0: not used
  std::vector<TreeEntry> tree;
  std::vector<std::string> readable, writable;  // as Landlock sees them
  std::vector<sock_filter> filter;
  std::string user_map, group_map, folder_options;
  std::vector<const char*> judge, program;  // argument vectors, ended by a null
  int job, verdict, report, errors;         // descriptors
  int processor_seconds, seconds;
  std::size_t memory_bytes, file_bytes;
};

/// What the warden writes to `report`, once.
struct WardenReport {
  const char* failed_step = nullptr;  // a literal; null: the walls stood
  int error = 0;                      // of the failed step
  bool timed_out = false;
  int program_status = 0;         // as of wait()
  bool program_outlived = false;  // the judge: it was ended by the warden
  double processor_seconds = 0;
};

/// Starts a warden; -1 with errno when the system refuses. End it with SIGKILL, which takes everything inside along.
pid_t start_warden(const WardenPlan& plan);

/// 0: this kernel has none.
int landlock_version();

}  // namespace slm::bench
