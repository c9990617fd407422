// Engine: continuous batching of requests. Its functions are in engine_definition.hpp.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "slm/core/cancel.hpp"
#include "slm/core/macros.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/lookup.hpp"
#include "slm/decode/rules.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/stats.hpp"
#include "slm/lm/any_model.hpp"

namespace slm { inline namespace v0_1 {

/// submit() and stats() are thread-safe. One thread at a time may call step() and run(); it does all computation. The
/// output of a request does not depend on other requests, their order, preemption or shared pages.
template <VerificationRule Rule = rule::Coupled>
class Engine {
  static_assert(Rule::may_drop,
                "slm: under this rule a text depends on the draft length, and so on the engine's load; use "
                "rule::Coupled or rule::Match");

 public:
  /// Throws the errors of SpeculativeDecoder's constructor.
  Engine(Drafter draft, AnyModel target, EngineOptions options = {}, Rule rule = {});

  template <class Draft, class Target>
  Engine(Draft draft, Target target, EngineOptions options = {}, Rule rule = {})
      : Engine(detail::drafter_for<Draft, Target>(std::move(draft)), AnyModel(std::move(target)), std::move(options),
               std::move(rule)) {}

  /// Ends all requests with FinishReason::cancelled. No thread may be in step() or run().
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. wake: called by the engine's thread when results are available; it may run once after the end
  /// was read. It must be short; its exceptions are ignored. Throws Error if the request is invalid, engine.full and
  /// engine.stopped. A failure to load the adapter ends the answer.
  Answer submit(Request request, const Scheduling& scheduling = {}, std::function<void()> wake = {});

  /// Runs one round of all running requests. Returns false if there was nothing to do: no requests, or all wait for
  /// readers or adapters. Throws the device's error; all requests, also queued ones, then end with it.
  bool step();

  /// For an application's own loop: steps while a further step as long as the last one ends within `time`. Prompts are
  /// cut so that a step fits. There is at least one step, which computes at least one row for each running request and
  /// cannot be interrupted. Returns false if there was nothing to do. Throws like step().
  bool step_for(std::chrono::nanoseconds time);

  /// Steps until no work is left and no adapter is awaited.
  void run();

  /// Steps until `stop` requests the end; an idle engine reads it every 20 ms. Then all requests end with
  /// FinishReason::cancelled, and submit() throws engine.stopped until run() or step() is called again.
  void run(const CancelToken& stop);

  EngineStats stats() const;

  const AnyModel& target() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}

#if SLM_COMPILES
#include "slm/engine/engine_definition.hpp"
#endif
namespace slm { inline namespace v0_1 {
namespace detail {
SLM_HAS_FUNCTIONS(slm_engine_engine_hpp)
}
SLM_TEMPLATE class Engine<rule::Coupled>;
}}
