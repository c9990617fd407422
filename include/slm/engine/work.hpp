// Work: a request of an engine and what becomes of it.
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
  Request request;  // until it begins
  std::stop_token cancel;
  Scheduling scheduling;
  std::uint64_t number;  // of its arrival
  std::shared_ptr<AnswerState> answer;
  Timeline timeline;
  std::unique_ptr<Answering> generation = nullptr;  // once it has begun
  bool in_round = false;
  bool said = false;          // something in the present round
  std::size_t overtaken = 0;  // times that another one has begun while it waited for its adapter

  bool before(const Work& other) const {
    return std::pair(scheduling.priority, number) < std::pair(other.scheduling.priority, other.number);
  }

  /// Whether it waits for an adapter of a store.
  bool wants_adapter() const { return generation == nullptr && scheduling.adapter; }
  /// Whether the adapter is there; the request then has it. Throws why it cannot be had.
  bool take_adapter(const ModelInfo& model) {
    request.adapter = scheduling.adapter.take();
    check_adapter(request.adapter, model);
    return request.adapter != nullptr;
  }

  /// Tokens that its reader has left.
  std::size_t unread() const {
    const std::lock_guard lock(answer->mutex);
    return answer->tokens.size();
  }
};

/// In their order.
template <class Answering>
using Works = std::list<Work<Answering>>;

/// Where a work belongs; most come last.
template <class Answering>
typename Works<Answering>::iterator place_of(Works<Answering>& works, const Work<Answering>& work) {
  auto place = works.end();
  while (place != works.begin() && work.before(*std::prev(place))) --place;
  return place;
}

/// Whether others that want adapters must not begin before this one any more: it has found no room beside theirs while
/// so many of them did.
template <class Answering>
bool bars(const Work<Answering>* passed, std::size_t most) {
  return passed != nullptr && passed->overtaken >= most && passed->scheduling.adapter.lacks_room();
}

}}}
