// Work: a request of an engine and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>

#include "slm/decode/request.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/timeline.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

template <class Answering>
struct Work {
  Request request;  // valid until it starts
  std::stop_token cancel;
  Scheduling scheduling;
  std::uint64_t number;  // arrival number
  std::shared_ptr<AnswerState> answer;
  Timeline timeline;
  std::unique_ptr<Answering> generation = nullptr;  // set when it starts
  bool in_round = false;
  bool said = false;          // has emitted tokens in this round
  std::size_t overtaken = 0;  // number of requests that started while this one waited for its adapter

  bool before(const Work& other) const {
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
template <class Answering>
using Works = std::list<Work<Answering>>;

/// Insertion point by (priority, arrival); searched from the end, where most belong.
template <class Answering>
typename Works<Answering>::iterator place_of(Works<Answering>& works, const Work<Answering>& work) {
  auto place = works.end();
  while (place != works.begin() && work.before(*std::prev(place))) --place;
  return place;
}

/// Whether later requests with adapters must wait for this one: `most` of them have overtaken it while it lacked
/// adapter memory.
template <class Answering>
bool bars(const Work<Answering>* passed, std::size_t most) {
  return passed != nullptr && passed->overtaken >= most && passed->scheduling.adapter.lacks_room();
}

}}}
