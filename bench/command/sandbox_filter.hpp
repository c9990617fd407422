// The system calls that a program in the sandbox may not make.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace slm::bench {

/// A seccomp filter; empty on processors it is not written for.
std::vector<sock_filter> system_call_filter();

}  // namespace slm::bench
