// Slots: the last texts of requests with `id_slot`, and their files: llama.cpp's saved slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "http/exchange.hpp"
#include "slm/core/cancel.hpp"
#include "slm/core/types.hpp"

namespace serve {

struct ServedModel;
class Service;

struct SlotText {
  std::vector<slm::Token> tokens = {};  // the prompt and the answer
  std::uint64_t tenant = 0;
};

/// Thread-safe.
class Slots {
 public:
  /// Slots 0 to count - 1. Files are in the folder.
  Slots(std::filesystem::path folder, std::size_t count) : folder_(std::move(folder)), count_(count) {}

  bool has(std::int64_t id) const { return id >= 0 && id < static_cast<std::int64_t>(count_); }
  void keep(int id, SlotText text);
  /// Empty if the slot has no text.
  SlotText text_of(int id) const;

  /// A file has the tokens of a text, and the model that they belong to. These return its size. They throw Refusal.
  std::size_t save(const std::string& name, const SlotText& text, const ServedModel& model) const;
  std::size_t read(const std::string& name, std::vector<slm::Token>& tokens, const ServedModel& model) const;

 private:
  std::filesystem::path folder_;
  std::size_t count_;
  mutable std::mutex writing_;
  mutable std::mutex mutex_;  // guards the texts
  std::map<int, SlotText> texts_;
};

/// A request to /slots/ID.
struct SlotAction {
  int id = 0;
  std::string action = {}, filename = {};  // action: save, restore or erase
  std::uint64_t tenant = 0;                // of a restored text
};

/// Restoring computes the text again, so that the cache has its pages. Throws Refusal.
std::unique_ptr<Exchange> answer_slot(const SlotAction& action, const ServedModel& model, Service& service,
                                      const slm::CancelToken& cancel, const std::function<void()>& wake);

}  // namespace serve
