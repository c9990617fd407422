// Job: a request of an engine and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "slm/core/cancel.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/timeline.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

template <class GenerationType>
struct Job {
  Request request;  // valid until it starts
  CancelToken cancel;
  Scheduling scheduling;
  std::uint64_t number;  // arrival number
  std::shared_ptr<AnswerState> answer;
  Timeline timeline;
  std::unique_ptr<GenerationType> generation = nullptr;  // set when it starts
  bool in_round = false;
  bool said = false;          // has emitted tokens in this round
  std::size_t overtaken = 0;  // number of requests that started while this one waited for its adapter

  bool before(const Job& other) const {
    return std::pair(scheduling.priority, number) < std::pair(other.scheduling.priority, other.number);
  }

  /// Whether it waits for an adapter of a store.
  bool wants_adapter() const { return generation == nullptr && scheduling.adapter; }
  /// Takes the adapter if it is loaded. Returns whether it was. Throws the error of loading.
  bool take_adapter(const ModelInfo& model) {
    request.adapter = scheduling.adapter.take();
    check_adapter(request.adapter, model);
    return request.adapter != nullptr;
  }

  /// Number of tokens that its reader has not read.
  std::size_t unread() const {
    const std::lock_guard lock(answer->mutex);
    return answer->tokens.size();
  }
};

/// Ordered by (priority, arrival).
template <class GenerationType>
using Jobs = std::list<Job<GenerationType>>;

/// Insertion point by (priority, arrival); searched from the end, where most belong.
template <class GenerationType>
typename Jobs<GenerationType>::iterator place_of(Jobs<GenerationType>& jobs, const Job<GenerationType>& job) {
  auto place = jobs.end();
  while (place != jobs.begin() && job.before(*std::prev(place))) --place;
  return place;
}

/// Whether later requests with adapters must wait for this one: `most` of them have overtaken it while it lacked
/// adapter memory.
template <class GenerationType>
bool bars(const Job<GenerationType>* passed, std::size_t most) {
  return passed != nullptr && passed->overtaken >= most && passed->scheduling.adapter.lacks_memory();
}

}}}
