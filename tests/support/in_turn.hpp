// The combinations of inputs that a test checks: all of them, or each in its turn.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace slm::testing {

/// Whether tests check every combination, as with `./test --all`, which sets this variable of the environment.
inline bool every_combination() {
  static const bool every = std::getenv("SLM_EVERY_COMBINATION") != nullptr;
  return every;
}

/// All of them, or one: the next one at each call. A test of many models in several ways then checks each model in one
/// way, and each way with some of the models. Two results that are compared must come from one call.
template <class T>
std::vector<T> in_turn(std::initializer_list<T> all) {
  static std::size_t turn = 0;
  if (every_combination()) return all;
  return {all.begin()[turn++ % all.size()]};
}

}  // namespace slm::testing
