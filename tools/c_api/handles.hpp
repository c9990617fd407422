// The common part of the C interface: errors as codes, structs of other versions, arrays for the caller, and the
// content of handles.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/stats.hpp"
#include "slm/grammar/token_trie.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/slm.h"
#include "slm/text/chat_template.hpp"
#include "slm/text/tokenizer.hpp"

struct slm_model {
  slm::AnyModel model;
};

struct slm_tokenizer {
  explicit slm_tokenizer(slm::Tokenizer of) : tokenizer(std::move(of)) {}

  /// Built by the first constraint.
  const slm::TokenTrie& trie() const {
    const std::lock_guard lock(mutex_);
    if (!trie_) trie_.emplace(tokenizer);
    return *trie_;
  }

  const slm::Tokenizer tokenizer;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<slm::TokenTrie> trie_;
};

struct slm_template {
  slm::ChatTemplate chat;
};

struct slm_constraint {
  slm::ConstraintRef constraint;
};

struct slm_adapter {
  slm::AdapterRef adapter;
};

namespace c_api {

inline slm::Error misuse(std::string_view id, std::string_view sentence, std::string_view next_step) {
  return {id, sentence, next_step};
}

/// Records the exception that is being handled for slm_error_id(); returns its status.
slm_status record_exception() noexcept;

/// Runs the body of a function of the interface.
template <class Body>
slm_status guarded(Body body) noexcept {
  try {
    body();
    return SLM_OK;
  } catch (...) {
    return record_exception();
  }
}

template <class T>
T& required(T* pointer, std::string_view name) {
  if (pointer == nullptr) {
    throw misuse("c.null", slm::text("expected a value for ", name, ", found a null pointer"), "Pass it");
  }
  return *pointer;
}

template <class T>
std::span<const T> array(const T* first, std::size_t count, std::string_view name) {
  if (count > 0) required(first, name);
  return {first, count};
}

inline std::string_view characters(const char* text, std::size_t size, std::string_view name) {
  const std::span<const char> all = array(text, size, name);
  return {all.data(), all.size()};
}

/// A text that may be absent.
inline std::string_view optional_text(const char* text) { return text == nullptr ? std::string_view{} : text; }

inline std::filesystem::path path_of(const char* text, std::string_view name) {
  return slm::path_of(&required(text, name));
}

/// Copies a struct of another version of the interface. oldest: the size of its first version.
template <class T>
T read_struct(const T* given, std::size_t oldest, std::string_view name) {
  T read{};
  if (given == nullptr) return read;
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  const auto wrong = [&](std::string_view found) {
    return misuse("c.struct-size",
                  slm::text("expected the size of ", name, " to be ", sizeof(T), " bytes, found ", found),
                  "Zero the struct, and set size to its sizeof");
  };
  constexpr std::size_t most = 4096;
  if (size < oldest || size > most) throw wrong(slm::text(size));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) throw wrong(slm::text(size, ", with members that this version does not know"));
  }
  std::memcpy(&read, given, std::min(size, sizeof(T)));
  read.size = sizeof(T);
  return read;
}

/// Writes a struct as far as the caller's version has it.
template <class T>
void write_struct(T* to, T value, std::size_t oldest, std::string_view name) {
  required(to, name);
  std::size_t size = 0;
  std::memcpy(&size, to, sizeof size);
  if (size < oldest) {
    throw misuse("c.struct-size",
                 slm::text("expected the size of ", name, " to be ", sizeof(T), " bytes, found ", size),
                 "Set size to the sizeof of the struct");
  }
  value.size = size;
  std::memcpy(to, &value, std::min(size, sizeof(T)));
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

/// A copy that slm_free() releases, with `more` zeroed elements behind it.
template <class T>
std::unique_ptr<T, Free> copied(std::span<const T> values, std::size_t more = 0) {
  auto* memory = static_cast<T*>(std::calloc(std::max<std::size_t>(values.size() + more, 1), sizeof(T)));
  if (memory == nullptr) throw std::bad_alloc();
  if (!values.empty()) std::memcpy(memory, values.data(), values.size_bytes());
  return std::unique_ptr<T, Free>(memory);
}

/// Passes an array to the caller.
template <class T>
void give(std::span<const T> values, T** out, std::size_t* count, std::size_t more = 0) {
  required(out, "the array");
  required(count, "its size");
  *out = copied(values, more).release();
  *count = values.size();
}

/// Claims a handle for one call.
class Claim {
 public:
  Claim(std::atomic<bool>& taken, std::string_view name) : taken_(taken) {
    if (taken_.exchange(true)) {
      throw misuse("c.busy", slm::text("expected one call at a time for ", name, ", found a second one"),
                   "Use one handle per thread, and call no function of a handle from its callbacks");
    }
  }
  ~Claim() { taken_ = false; }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  std::atomic<bool>& taken_;
};

slm::Request request_of(const slm_request* given);
slm::Drafter drafter_of(const slm_drafting& drafting);
slm::Speculation speculation_of(const slm_drafting& drafting);
slm_drafting drafting_of(const slm_drafting* given);
slm::Pooling pooling_of(std::int32_t pooling);
void write_stats(slm_stats* to, const slm::Stats& stats);

/// A token as the caller receives it; `top` must outlive it.
slm_generated generated(slm::Token token, std::int64_t position, bool drafted, double logprob,
                        std::span<const slm_logprob> top);
void copy_top(std::span<const slm::TokenLogprob> from, std::vector<slm_logprob>& to);

}  // namespace c_api
