// A progress bar on standard error, drawn on terminals only.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "tools/cli/system.hpp"

namespace cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }

  void operator()(double share) {
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    if (!terminal_ || elapsed < 0.3) return;
    drawn_ = true;
    const int filled = static_cast<int>(share * width);
    std::fprintf(stderr, "\r%s [%s%s] %3d%%%s\x1b[K", label_.c_str(), std::string(filled, '#').c_str(),
                 std::string(width - filled, ' ').c_str(), static_cast<int>(share * 100),
                 share > 0 ? time_left(elapsed * (1 - share) / share).c_str() : "");
    std::fflush(stderr);
  }

 private:
  static constexpr int width = 32;

  /// Returns an empty text for the last seconds.
  static std::string time_left(double seconds) {
    if (seconds < 5) return "";
    const long whole = static_cast<long>(seconds);
    char text[48];
    if (whole < 3600) {
      std::snprintf(text, sizeof text, ", %ld:%02ld left", whole / 60, whole % 60);
    } else {
      std::snprintf(text, sizeof text, ", %ld h %02ld min left", whole / 3600, whole % 3600 / 60);
    }
    return text;
  }

  std::string label_;
  bool terminal_ = is_terminal(stderr);
  bool drawn_ = false;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace cli
