// Loading models, with a bar on the terminal when it takes long.
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "cli.hpp"

namespace cli {

namespace {

/// Draws on standard error, and only where someone watches.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }

  void operator()(double share) {
    const auto elapsed = std::chrono::steady_clock::now() - began_;
    if (!terminal_ || elapsed < std::chrono::milliseconds(300)) return;
    drawn_ = true;
    const int filled = static_cast<int>(share * width);
    std::fprintf(stderr, "\rloading %s [%s%s] %3d%%", label_.c_str(), std::string(filled, '#').c_str(),
                 std::string(width - filled, ' ').c_str(), static_cast<int>(share * 100));
    std::fflush(stderr);
  }

 private:
  static constexpr int width = 32;
  std::string label_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace

slm::AnyModel Loader::load(const std::string& folder, const std::string& backend) {
  ProgressBar bar(folder);
  slm::LoadOptions options;
  options.progress = [&bar](double share) { bar(share); };
  // Kernels do not depend on a model's shape. The program runs every shape as Dynamic, without a list of known ones,
  // and compiles in a fraction of the time; example-generate shows slm::load with the list.
  if (backend == "reference") return slm::load<slm::Registry<>>(folder, slm::backend::Reference{}, options);
  if (!cpu_) cpu_.emplace(slm::backend::CpuOptions{.threads = threads_});
  return slm::load<slm::Registry<>>(folder, *cpu_, options);
}

void add_backend_options(CLI::App& command, std::string& backend, int& threads) {
  command.add_option("--backend", backend, "where the model runs: cpu or reference (plain loops, slow)")
      ->check(backend_name())
      ->capture_default_str();
  command.add_option("--threads", threads, "threads of the cpu backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

CLI::Validator backend_name() { return CLI::IsMember({"cpu", "reference"}); }

}  // namespace cli
