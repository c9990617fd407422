// Requests for adapters, drawn by Zipf's law. The store holds an adapter in memory or loads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/adapters/many.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/lm/any_model.hpp"

namespace slm::bench {

/// Item n of `count` has a probability proportional to 1 / n.
class Zipf {
 public:
  Zipf(int count, std::uint64_t seed) : state_(seed) {
    double sum = 0;
    for (int n = 1; n <= count; ++n) until_.push_back(sum += 1.0 / n);
  }
  /// 0..count - 1
  std::size_t operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const double at = static_cast<double>(state_ >> 11) * 0x1p-53 * until_.back();
    const auto found = std::upper_bound(until_.begin(), until_.end(), at) - until_.begin();
    return std::min(static_cast<std::size_t>(found), until_.size() - 1);
  }

 private:
  std::vector<double> until_;
  std::uint64_t state_;
};

/// Folders with separate names that share the files of a few adapters.
class ManyFolders {
 public:
  ManyFolders(std::filesystem::path folder, const Checkpoint& checkpoint, int count, int rank)
      : folder_(std::move(folder)) {
    constexpr int different = 64;
    for (int i = 0; i < count; ++i) {
      names_.push_back("adapter-" + std::to_string(i));
      if (i < different) {
        write_adapter(folder_ / names_.back(), checkpoint, rank, static_cast<std::uint64_t>(i) + 1);
        continue;
      }
      std::filesystem::create_directory(folder_ / names_.back());
      for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
        std::filesystem::create_hard_link(folder_ / names_[static_cast<std::size_t>(i % different)] / file,
                                          folder_ / names_.back() / file);
      }
    }
  }

  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> names_;
};

/// At most `places` sequences run at once. A request asks the store for its adapter when it is submitted, one round
/// ahead. It starts when the adapter is loaded and a place is free.
class Traffic {
 public:
  static constexpr int places = 32, prompt = 32, new_tokens = 32;

  Traffic(const AnyModel& model, AdapterStore& store) : model_(model), store_(store) {
    for (int i = 0; i < prompt; ++i) tokens_.push_back(static_cast<Token>(i * 7919 % model_.info().vocab));
  }

  void serve(std::span<const std::string> names) {
    std::deque<AdapterLease> waiting;
    std::vector<Text> running;
    Batch batch;
    for (std::size_t asked = 0; asked < names.size() || !waiting.empty() || !running.empty();) {
      while (asked < names.size() && waiting.size() < places) waiting.push_back(store_.lease(names[asked++]));
      begin(waiting, running);
      batch.clear();
      for (Text& text : running) {
        batch.add(text.sequence, text.left == new_tokens ? std::span(tokens_) : std::span(tokens_).last(1),
                  {.result = RowResult::logits});
        --text.left;
      }
      model_.forward(batch);
      std::erase_if(running, [](const Text& text) { return text.left == 0; });
    }
  }

 private:
  struct Text {
    Sequence sequence;
    int left = new_tokens;
  };

  void begin(std::deque<AdapterLease>& waiting, std::vector<Text>& running) {
    for (auto at = waiting.begin(); at != waiting.end() && running.size() < places;) {
      AdapterRef adapter = running.empty() ? at->wait() : at->take();
      if (adapter == nullptr) {
        ++at;
        continue;
      }
      running.push_back({model_.sequence()});
      running.back().sequence.adapt(std::move(adapter));
      at = waiting.erase(at);
    }
  }

  const AnyModel& model_;
  AdapterStore& store_;
  std::vector<Token> tokens_;
};

}  // namespace slm::bench
