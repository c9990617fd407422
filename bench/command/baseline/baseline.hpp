// Another engine, measured on the same prompts by a child process (bench/peers/): what it is, what it is asked, and
// what its answers must look like to count.
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

/// A model that slm measures, and that the other engine must have loaded with the same weights.
struct MeasuredModel {
  std::filesystem::path folder;
  std::string digest;  // weights_digest of its checkpoint
  int vocab = 0;
};

struct BaselineSetup {
  MeasuredModel target;
  std::optional<MeasuredModel> draft;
  int threads = 1;
  int context = 0;               // tokens that a prompt and its continuation have together at most
  std::filesystem::path folder;  // of the run: for the engine's log, and its temporary files
  std::string python = "python3";
  double seconds = 600;  // that one answer may take
};

/// What an engine says about itself.
struct BaselineEngine {
  std::string name, version, dtype;
  std::optional<std::string> speculation;  // how it speculates; nothing: it does not
  std::vector<std::string> notes;
  int threads = 0;
};

struct BaselineTask {
  std::vector<Token> prompt;
  std::vector<Token> end_tokens;
  Sampling sampling;
  std::optional<std::string> draft_length;  // "heuristic" or a number; nothing: plain decoding
};

struct BaselineAnswer {
  std::vector<Token> new_ids;
  double total = 0, prompt = 0;                        // seconds; reading the prompt is part of the total
  std::int64_t drafted = 0, accepted = 0, rounds = 0;  // 0 when plain
};

class Baseline {
 public:
  /// Starts an engine and lets it load the models. name: "transformers", "llama.cpp", or the path of a script that
  /// speaks as bench/peers/peer.py describes. Throws baseline.unknown, baseline.refused, baseline.bad-answer,
  /// baseline.other-weights, baseline.other-threads, child.*.
  Baseline(const std::string& name, BaselineSetup setup);

  const BaselineEngine& engine() const { return engine_; }

  /// Throws baseline.refused, baseline.bad-answer, child.*; after that the engine is to be given up.
  BaselineAnswer run(const BaselineTask& task);

 private:
  /// A folder for the engine's own files, gone with it.
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

/// The position of the first token in which two texts differ; nothing: they are equal.
std::optional<std::size_t> first_differing_token(const std::vector<Token>& one, const std::vector<Token>& other);

}  // namespace slm::bench
