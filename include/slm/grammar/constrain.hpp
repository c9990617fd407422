// constrain(): a grammar as the constraint of requests.
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/core/macros.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/token_trie.hpp"

namespace slm { inline namespace v0_1 {

/// The constraint of answers that are texts of the grammar, for Request::constraint. tokens: of the target's tokenizer.
ConstraintRef constrain(const Grammar& grammar, const TokenTrie& tokens);

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_grammar_constrain_hpp)
}}}

#if SLM_COMPILES
#include "slm/grammar/constrain_functions.hpp"
#endif
