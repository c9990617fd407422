// StepGraphs: recorded launches of a model's steps, by step shape.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/step_program.hpp"
#include "slm/backend/gpu/steps/step_shape.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Owned by a model, whose buffers the launches reference.
template <Runtime R>
class StepGraphs {
 public:
  static constexpr std::size_t most = 256;  // each record uses device memory

  /// Runs the launches of body(), which must be equal for all steps of a shape. The first step of a shape runs
  /// directly, since it may allocate; the second is recorded; later ones replay the record. With persistent_steps, a
  /// step of few rows becomes a program if possible.
  template <class State, class Body>
  void run(const StepShape& shape, State& state, Body&& body) {
    R& runtime = state.runtime;
    const bool full = records_.size() == most && !records_.contains(shape);
    if (!records_.empty() && (full || shape.generation != generation_)) {
      runtime.synchronize(state.stream);
      records_.clear();
    }
    generation_ = shape.generation;
    const auto [found, first] = records_.try_emplace(shape);
    if (first) return body();
    Record& record = found->second;
    if (!record.program && !record.graph) {
      const bool few = shape.rows <= state.options.most_vector_rows && !shape.adapted;
      if (few && state.options.persistent_steps) record.program = program_of(state, body);
      if (!record.program) record.graph = graph_of(runtime, state.stream, body);
    }
    if (record.program) return record.program->play(runtime, state.stream);
    runtime.replay(*record.graph, state.stream);
  }

 private:
  struct Record {  // one of them is set after recording
    std::optional<StepProgram<R>> program;
    std::optional<typename R::Graph> graph;
  };

  template <class State, class Body>
  static std::optional<StepProgram<R>> program_of(State& state, Body& body) {
    std::optional<StepProgram<R>> program(std::in_place);
    state.program = &*program;
    try {
      body();
    } catch (...) {
      state.program = nullptr;
      throw;
    }
    state.program = nullptr;
    if (!program->complete()) return std::nullopt;
    program->upload(state.runtime, state.stream);
    return program;
  }

  template <class Body>
  static typename R::Graph graph_of(R& runtime, typename R::Stream& stream, Body& body) {
    runtime.begin_capture(stream);
    try {
      body();
    } catch (...) {
      static_cast<void>(runtime.end_capture(stream));
      throw;
    }
    return runtime.end_capture(stream);
  }

  std::map<StepShape, Record> records_;
  int generation_ = 0;
};

}}}
