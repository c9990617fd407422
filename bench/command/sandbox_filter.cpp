#include "bench/command/sandbox_filter.hpp"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

namespace slm::bench {

namespace {

#if defined(__x86_64__)
constexpr unsigned architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned architecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned architecture = 0;
#endif

/// Linux 5.17's last one. What came later does not exist for the program, so this list need not follow the kernel.
constexpr unsigned last_known_call = 450;

constexpr long denied[] = {
    // other processes and threads: none can be made, signalled or looked into
    SYS_clone,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_pidfd_getfd,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_process_madvise,
    SYS_sched_setaffinity,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_setsid,
    SYS_setpgid,
    // the network, and memory that outlives a process or escapes its limit
    SYS_socket,
    SYS_socketpair,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_memfd_create,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_setup,
    // the owner and the mode of a file, which Landlock leaves alone
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_truncate,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_mknodat,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_fanotify_init,
    SYS_inotify_init1,
    // the system: no privilege is left to use these, and they are where kernels had holes
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_personality,
    SYS_quotactl,
    SYS_acct,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_mknod,
    SYS_inotify_init,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
};

}  // namespace

std::vector<sock_filter> system_call_filter() {
  std::vector<sock_filter> filter;
  if (architecture == 0) return filter;
  const auto load = [&](std::size_t offset) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
  };
  // answer_if(test, value): when the loaded word passes, the call ends with this answer
  const auto answer_if = [&](unsigned test, unsigned value, unsigned answer) {
    filter.push_back(BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, answer));
  };
  const auto error = [](int number) { return SECCOMP_RET_ERRNO | static_cast<unsigned>(number); };
  const auto deny_argument = [&](long call, unsigned test, unsigned value) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 4));
    load(offsetof(seccomp_data, args[0]));  // the lower half: both processors are little-endian
    answer_if(test, value, error(EPERM));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  };

  load(offsetof(seccomp_data, arch));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  load(offsetof(seccomp_data, nr));
  answer_if(BPF_JGT, last_known_call, error(ENOSYS));
  answer_if(BPF_JEQ, SYS_clone3, error(ENOSYS));  // the C library then asks for clone
  for (const long call : denied) answer_if(BPF_JEQ, static_cast<unsigned>(call), error(EPERM));
  deny_argument(SYS_prctl, BPF_JEQ, PR_SET_PDEATHSIG);  // so that the warden's end stays the program's
  deny_argument(SYS_prlimit64, BPF_JGT, 0);             // of itself only
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace slm::bench
