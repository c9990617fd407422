// AnyEpilogue: selects an epilogue at run time, so that a persistent kernel has one product for all of them.
#pragma once

#include <type_traits>

#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

struct AnyEpilogue {
  enum class Kind { add_to_rows, activated, gated, queries_keys_values };
  struct Args {
    Kind kind = {};
    AddToRows::Args add_to_rows = {};  // only the arguments of the selected kind are used
    Activated::Args activated = {};
    Gated::Args gated = {};
    QueriesKeysValues::Args queries_keys_values = {};
  };

  template <class Epilogue>
  static Args args_of(const typename Epilogue::Args& args) {
    if constexpr (std::is_same_v<Epilogue, AddToRows>) {
      return {.kind = Kind::add_to_rows, .add_to_rows = args};
    } else if constexpr (std::is_same_v<Epilogue, Activated>) {
      return {.kind = Kind::activated, .activated = args};
    } else if constexpr (std::is_same_v<Epilogue, Gated>) {
      return {.kind = Kind::gated, .gated = args};
    } else {
      static_assert(std::is_same_v<Epilogue, QueriesKeysValues>);
      return {.kind = Kind::queries_keys_values, .queries_keys_values = args};
    }
  }

  static SLM_DEVICE void apply(const Args& args, const Panel& panel, int i, int row, float a, float b) {
    switch (args.kind) {
      case Kind::add_to_rows: return AddToRows::apply(args.add_to_rows, panel, i, row, a, b);
      case Kind::activated: return Activated::apply(args.activated, panel, i, row, a, b);
      case Kind::gated: return Gated::apply(args.gated, panel, i, row, a, b);
      case Kind::queries_keys_values: return QueriesKeysValues::apply(args.queries_keys_values, panel, i, row, a, b);
    }
  }
};

}}}
