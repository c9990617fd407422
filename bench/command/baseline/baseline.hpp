// Another engine (bench/peers/), run as a child process on the same prompts. The answers are validated before they
// count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/command/child.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/io/json.hpp"

namespace slm::bench {

/// A model that slm measures. The other engine must load the same weights.
struct MeasuredModel {
  std::filesystem::path folder;
  std::string digest;  // weights_digest of its checkpoint
  int vocab = 0;
};

struct BaselineSetup {
  MeasuredModel target;
  std::optional<MeasuredModel> draft;
  int threads = 1;
  int context = 0;               // most tokens of a prompt and its continuation together
  std::filesystem::path folder;  // of the run: holds the engine's log and temporary files
  std::string python = "python3";
  double seconds = 600;  // time limit of one answer
};

/// The engine's description of itself.
struct BaselineEngine {
  std::string name, version, dtype;
  std::optional<std::string> speculation;  // method of speculation; empty: none
  std::vector<std::string> notes;
  int threads = 0;
};

struct BaselineTask {
  std::vector<Token> prompt;
  std::vector<Token> end_tokens;
  Sampling sampling;
  std::optional<std::string> draft_length;  // "heuristic" or a number; empty: plain decoding
};

struct BaselineAnswer {
  std::vector<Token> new_ids;
  double total = 0, prompt = 0;                        // seconds; the total includes the prompt
  std::int64_t drafted = 0, accepted = 0, rounds = 0;  // 0 for plain decoding
};

class Baseline {
 public:
  /// Starts an engine and waits until it has loaded the models. name: "transformers", "llama.cpp", or the path of a
  /// script with the protocol of bench/peers/peer.py. Throws baseline.unknown, baseline.refused, baseline.bad-answer,
  /// baseline.other-weights, baseline.other-threads, child.*.
  Baseline(const std::string& name, BaselineSetup setup);

  const BaselineEngine& engine() const { return engine_; }

  /// Throws baseline.refused, baseline.bad-answer, child.*. After an exception the engine must not be used again.
  BaselineAnswer run(const BaselineTask& task);

 private:
  /// A folder for the engine's temporary files, removed by the destructor.
  struct Scratch {
    std::filesystem::path path;
    explicit Scratch(std::filesystem::path at);
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch();
  };

  Json ask(const Json& request);
  void meet();
  Error bad_answer(const std::string& what) const;

  BaselineSetup setup_;
  std::string name_;
  std::string remedy_;
  Scratch scratch_;
  Child child_;
  BaselineEngine engine_;
};

/// The position of the first token in which two sequences differ; nothing: they are equal.
std::optional<std::size_t> first_differing_token(const std::vector<Token>& one, const std::vector<Token>& other);

}  // namespace slm::bench
