// slm bench adapters: memory, switch time, load time and mixed batches of many adapters of one model in one process.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/adapters/many.hpp"
#include "bench/command/adapters/traffic.hpp"
#include "bench/command/command.hpp"
#include "bench/command/tables.hpp"
#include "bench/device/random_weights.hpp"
#include "bench/samples.hpp"
#include "slm/adapters.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"

namespace slm::bench {

namespace {

struct AdaptersCommand {
  std::string target;
  int adapters = 10'000, rank = 8, samples = 41, threads = 0;
  bool json = false;
};

/// A field of a /proc file in KiB, converted to bytes.
double system_bytes(const char* file, const std::string& field) {
  std::ifstream stream(file);
  for (std::string word; stream >> word;) {
    if (double kibibytes = 0; word == field && stream >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

double resident() { return system_bytes("/proc/self/status", "VmRSS:"); }

struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / text("slm-bench-adapters-", static_cast<long>(getpid()));
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// Processor seconds of all threads of this process. Other processes do not lengthen them.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Times of two alternating actions.
class Turns {
 public:
  template <class Adapted, class Bare>
  void add(Adapted&& adapted, Bare&& bare) {
    measure(adapted_, adapted);
    measure(bare_, bare);
  }

  cli::OrderedJson json() const {
    std::vector<double> shares;
    for (std::size_t i = 0; i < bare_.seconds.size(); ++i) shares.push_back(bare_.seconds[i] / adapted_.seconds[i]);
    return {{"seconds", median(adapted_.seconds)},
            {"seconds_beside", median(bare_.seconds)},
            {"share", median(shares)},
            {"share_of_processor", bare_.processor / adapted_.processor}};
  }

 private:
  struct Times {
    std::vector<double> seconds;
    double processor = 0;
  };

  template <class Action>
  static void measure(Times& times, Action& action) {
    const double processor = processor_seconds(), began = slm::bench::seconds();
    action();
    times.seconds.push_back(slm::bench::seconds() - began);
    times.processor += processor_seconds() - processor;
  }

  Times adapted_, bare_;
};

class AdaptersBench {
 public:
  static constexpr int prompt = 64, texts = 32;

  explicit AdaptersBench(const AdaptersCommand& command)
      : command_(command), device_({.threads = command.threads}), model_(open()) {}

  cli::OrderedJson run() {
    cli::OrderedJson json{{"model", model_.info().name},
                          {"threads", device_.threads()},
                          {"rank", command_.rank},
                          {"adapters", command_.adapters}};
    write_adapter(folder_.path / "one", *checkpoint_, command_.rank, 1);
    measure_loads(json);
    open_all(json);
    measure_switch(json);
    for (const int count : {1, texts}) measure_batch(json, count);
    measure_traffic(json);
    return json;
  }

 private:
  AnyModel open() {
    if (!command_.target.empty()) {
      checkpoint_ = std::make_shared<const Checkpoint>(command_.target);
      return load(command_.target, device_);
    }
    const Subject subject{"AMD-Llama-135M", "bf16", configs::AmdLlama_135M::value};
    weights_ = std::make_unique<RandomCheckpoint>(subject, 2 * prompt, true);
    checkpoint_ = weights_->checkpoint();
    return Model<Dynamic, Bf16, backend::Cpu>(Dynamic{subject.shape}, checkpoint_, device_);
  }

  /// Loads files from the page cache: reading, checking and packing.
  void measure_loads(cli::OrderedJson& json) {
    std::vector<double> times;
    for (int i = 0; i < 4 * command_.samples; ++i) {
      const double began = seconds();
      first_ = load_adapter(folder_.path / "one", model_);
      times.push_back(seconds() - began);
    }
    json["adapter_bytes"] = first_->bytes;
    json["load"] = {{"median", median(times)}, {"fastest", *std::min_element(times.begin(), times.end())}};
  }

  void check_memory() const {
    const double needed = 1.2 * command_.adapters * static_cast<double>(first_->bytes) + 1e9;
    const double free = system_bytes("/proc/meminfo", "MemAvailable:");
    if (needed <= free) return;
    throw Error(
        "bench.no-memory",
        text(command_.adapters, " adapters need ", shown(needed / 1e9), " GB, and ", shown(free / 1e9), " GB are free"),
        "Measure fewer with --adapters, or free memory");
  }

  void open_all(cli::OrderedJson& json) {
    check_memory();
    const double before = resident();
    cli::ProgressBar bar("opening adapters");
    for (int i = 0; i < command_.adapters; ++i) {
      adapters_.push_back(another(*first_, static_cast<std::uint64_t>(i) + 2));
      bar(static_cast<double>(i + 1) / command_.adapters);
    }
    json["resident"] = {{"before", before}, {"with_all", resident()}};
  }

  /// Switches one sequence through all adapters in turn. The clock is read before and after each switch.
  void measure_switch(cli::OrderedJson& json) const {
    Sequence text = model_.sequence();
    std::vector<double> times, clock;
    std::uint64_t state = 1;
    for (int i = 0; i < 100'000; ++i) {
      const AdapterRef& next = adapters_[(random_weights(state) >> 8) % adapters_.size()];
      const double began = seconds();
      text.adapt(next);
      const double then = seconds();
      clock.push_back(seconds() - then);
      times.push_back(then - began);
    }
    std::sort(times.begin(), times.end());
    json["switch"] = {{"median", median(times)}, {"p99", times[times.size() * 99 / 100]}, {"clock", median(clock)}};
  }

  /// Batches of `count` sequences, each with its own adapter, alternating with batches without adapters.
  void measure_batch(cli::OrderedJson& json, int count) const {
    std::vector<Token> tokens(prompt + 1);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<Token>(i * 7919 % static_cast<std::size_t>(model_.info().vocab));
    std::vector<Sequence> adapted, bare;
    Batch batch;
    for (int i = 0; i < count; ++i) {
      adapted.push_back(model_.sequence());
      adapted.back().adapt(adapters_[static_cast<std::size_t>(i) * adapters_.size() / static_cast<std::size_t>(count)]);
      bare.push_back(model_.sequence());
      for (std::vector<Sequence>* all : {&adapted, &bare}) {
        batch.clear();
        batch.add(all->back(), std::span(tokens).first(prompt));
        model_.forward(batch);
      }
    }
    const auto step = [&](std::vector<Sequence>& all) {
      batch.clear();
      for (Sequence& text : all) batch.add(text, std::span(tokens).last(1), {.result = RowResult::logits});
      model_.forward(batch);
      for (Sequence& text : all) text.truncate(prompt);
    };
    for (int i = 0; i < 3; ++i) step(adapted), step(bare);
    Turns turns;
    for (int i = 0; i < (count == 1 ? 10 : 1) * command_.samples; ++i)
      turns.add([&] { step(adapted); }, [&] { step(bare); });
    json["batches"].push_back(turns.json());
    json["batches"].back()["texts"] = count;
  }

  /// The same requests with a cache of a tenth of the adapters and with a cache of all, alternating.
  void measure_traffic(cli::OrderedJson& json) {
    adapters_.clear();
#if defined(__GLIBC__)
    malloc_trim(0);  // the store allocates in another thread, which cannot reuse memory that this thread freed
#endif
    check_memory();
    const ManyFolders folders(folder_.path / "many", *checkpoint_, command_.adapters, command_.rank);
    const std::vector<std::string>& names = folders.names();
    const std::size_t capacity = names.size() / 10;
    AdapterStore some(model_, {.folder = folders.folder(), .host_memory = capacity * first_->bytes});
    AdapterStore all(model_, {.folder = folders.folder()});
    Zipf draw(command_.adapters, 1);
    cli::ProgressBar bar("loading adapters");
    for (std::size_t i = 0; i < names.size(); ++i) {
      all.lease(names[i]).wait();
      if (i < 4 * capacity) some.lease(names[draw()]).wait();
      bar(static_cast<double>(i + 1) / static_cast<double>(names.size()));
    }
    const AdapterStoreStats before = some.stats();
    Traffic with_some(model_, some), with_all(model_, all);
    Turns turns;
    constexpr int requests = 4 * Traffic::places;
    for (int i = 0; i < std::max(1, command_.samples / 4); ++i) {
      std::vector<std::string> asked;
      for (int r = 0; r < requests; ++r) asked.push_back(names[draw()]);
      turns.add([&] { with_some.serve(asked); }, [&] { with_all.serve(asked); });
    }
    const AdapterStoreStats after = some.stats();
    const auto hits = static_cast<double>(after.hits - before.hits);
    json["traffic"] = turns.json();
    json["traffic"]["requests"] = requests;
    json["traffic"]["capacity"] = capacity;
    json["traffic"]["hits"] = hits / (hits + static_cast<double>(after.misses - before.misses));
  }

  AdaptersCommand command_;
  backend::Cpu device_;
  TemporaryFolder folder_;
  std::unique_ptr<RandomCheckpoint> weights_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  AnyModel model_;
  AdapterRef first_;
  std::vector<AdapterRef> adapters_;
};

std::string table_of(const cli::OrderedJson& json) {
  std::string table;
  const auto line = [&](const char* format, auto... values) {
    char text[200];
    std::snprintf(text, sizeof text, format, values...);
    table += text;
  };
  const auto number = [](const cli::OrderedJson& value) { return value.get<double>(); };
  line("%s, %d threads; adapters of rank %d on the attention's products, %.0f KB each\n",
       json["model"].get<std::string>().c_str(), json["threads"].get<int>(), json["rank"].get<int>(),
       number(json["adapter_bytes"]) / 1e3);
  line("  %d open            resident set %.2f GB, without adapters %.2f GB\n", json["adapters"].get<int>(),
       number(json["resident"]["with_all"]) / 1e9, number(json["resident"]["before"]) / 1e9);
  line("  switch               median %.3f us, 99th percentile %.3f us (two readings of the clock: %.3f us)\n",
       number(json["switch"]["median"]) * 1e6, number(json["switch"]["p99"]) * 1e6,
       number(json["switch"]["clock"]) * 1e6);
  line("  load, file in memory median %.3f ms, fastest %.3f ms\n", number(json["load"]["median"]) * 1e3,
       number(json["load"]["fastest"]) * 1e3);
  const auto compared = [&](const std::string& what, const cli::OrderedJson& turns, const char* one,
                            const char* other) {
    line("  %-20s %.3f ms %s, %.3f ms %s: %.3f of its speed (by processor time %.3f)\n", what.c_str(),
         number(turns["seconds"]) * 1e3, one, number(turns["seconds_beside"]) * 1e3, other, number(turns["share"]),
         number(turns["share_of_processor"]));
  };
  for (const cli::OrderedJson& batch : json["batches"])
    compared(text(batch["texts"].get<int>(), " sequences per step"), batch, "each with its own adapter", "bare");
  const cli::OrderedJson& traffic = json["traffic"];
  compared(text(traffic["requests"].get<int>(), " requests, Zipf"), traffic,
           text("capacity ", traffic["capacity"].get<int>()).c_str(), "capacity for all");
  line("                       %.3f of the requests found their adapter loaded\n", number(traffic["hits"]));
  return table;
}

void run_adapters(const AdaptersCommand& command) {
  const cli::OrderedJson json = AdaptersBench(command).run();
  command.json ? cli::print_json(json) : cli::print(table_of(json));
}

}  // namespace

void add_adapters(CLI::App& bench) {
  const auto given = std::make_shared<AdaptersCommand>();
  CLI::App& command = *bench.add_subcommand(
      "adapters", "Many adapters of one model on the CPU: memory, switches, loads, mixed batches");
  command.add_option("--target", given->target, "model folder; default: random weights in the shape of AMD-Llama-135M");
  command.add_option("--adapters", given->adapters, "number of open adapters")
      ->check(CLI::Range(AdaptersBench::texts, 1'000'000))
      ->capture_default_str();
  command.add_option("--rank", given->rank, "of each")->check(CLI::Range(1, 256))->capture_default_str();
  command.add_option("--samples", given->samples, "samples per measurement")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command.add_option("--threads", given->threads, "CPU threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_flag("--json", given->json, "print one JSON object, in seconds and bytes");
  command.callback([given] { run_adapters(*given); });
}

}  // namespace slm::bench
