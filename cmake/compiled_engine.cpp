// A source of slm::compiled: the engine. The functions that it calls are in compiled.cpp and compiled_adapters.cpp.
#define SLM_IMPLEMENTATION 0
#include "slm/engine/engine_definition.hpp"

namespace slm { inline namespace v0_1 {
namespace detail {
void one_source_must_include_slm_engine_engine_hpp_without_SLM_IMPLEMENTATION_0() {}
}
template class Engine<rule::Coupled>;
}}
