// auto_calls(): the constraint of answers that may have calls. Text is free; a call is constrained from its opening
// tag.
#pragma once

#include <string>

#include "slm/decode/output_constraint.hpp"
#include "slm/grammar/token_trie.hpp"

namespace serve {

struct CallTags {
  std::string opening;               // begins a call
  std::string begin = {}, end = {};  // of reasoning, in which no call begins; empty: the form has none
  bool begun = false;                // the answer begins in reasoning
};

/// call: the text behind the opening tag. Tokens that begin before the end of the opening tag and reach beyond it are
/// forbidden.
slm::ConstraintRef auto_calls(CallTags tags, slm::ConstraintRef call, const slm::TokenTrie& tokens);

}  // namespace serve
