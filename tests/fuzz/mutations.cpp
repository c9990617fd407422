// The fuzzers without libFuzzer, for compilers other than clang: fuzz-NAME SEEDS SECONDS CRASH runs the seeds, then up
// to 20,000 inputs that differ from seeds by random changes. The inputs are the same in every run. An input that ends
// the program, or that takes longer than ten seconds, is written to the file CRASH.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr unsigned seconds_per_input = 10;
constexpr int most_inputs = 20000;

std::string input;
std::string crash_file;

void write_input() {
  std::ofstream(crash_file, std::ios::binary) << input;
  std::cerr << "the input is in " << crash_file << '\n';
}

void end_with_input(int signal) {
  write_input();
  _exit(128 + signal);
}

void run() {
  alarm(seconds_per_input);
  // A copy of exactly this size: reading beyond it is detected.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = seed();
    for (std::size_t change = 1 + below(4); change > 0; --change) mutate(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  const std::string& seed() { return seeds_[below(seeds_.size())]; }

  void mutate(std::string& text) {
    if (text.empty()) text.push_back(static_cast<char>(below(256)));
    const std::size_t at = below(text.size()), length = 1 + below(std::min<std::size_t>(text.size() - at, 64));
    switch (below(8)) {
      case 0: text[at] = static_cast<char>(text[at] ^ 1 << below(8)); return;
      case 1: text[at] = static_cast<char>(below(256)); return;
      case 2: text.resize(at); return;
      case 3: text.erase(at, length); return;
      case 4: text.insert(below(text.size()), text.substr(at, length)); return;
      case 5: {  // a number of 1, 2, 4 or 8 bytes that is extreme, or small
        const std::uint64_t values[] = {0, 1, ~std::uint64_t{0}, std::uint64_t{1} << 63, 0x7fffffff, below(1000)};
        const std::uint64_t value = values[below(std::size(values))];
        for (std::size_t i = 0, bytes = std::size_t{1} << below(4); i < bytes && at + i < text.size(); ++i)
          text[at + i] = static_cast<char>(value >> 8 * i);
        return;
      }
      case 6: {  // a digit, or a character with a meaning in texts
        constexpr std::string_view special = "0123456789-+.eE\"'\\{}[](),:;<>|*?/%#=!&$^~_ \n\t";
        text[at] = special[below(special.size())];
        return;
      }
      default: {
        const std::string& other = seed();
        if (other.empty()) return;
        const std::size_t from = below(other.size());
        text.insert(at, other.substr(from, 1 + below(other.size() - from)));
      }
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{1};
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: fuzz-NAME SEEDS SECONDS CRASH\n";
    return 2;
  }
  crash_file = arguments[3];
  LLVMFuzzerInitialize(&count, &arguments);
  __sanitizer_set_death_callback(write_input);
  std::signal(SIGALRM, end_with_input);
  std::signal(SIGABRT, end_with_input);  // an exception that nothing catches
  std::vector<std::string> seeds;
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(arguments[1]), {});
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    input.assign(std::istreambuf_iterator<char>(stream), {});
    run();
    seeds.push_back(input);
  }
  Mutator mutator(std::move(seeds));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(arguments[2]));
  int inputs = 0;
  for (; inputs < most_inputs && std::chrono::steady_clock::now() < end; ++inputs) {
    input = mutator.next();
    run();
  }
  std::cout << files.size() << " seeds, " << inputs << " changed inputs\n";
}
