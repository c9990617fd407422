// ForcedText: drafts the text that a request's constraint forces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/decode/request.hpp"

namespace slm { inline namespace v0_1 {

/// A source of drafts without a model. Requests without a constraint get no drafts from it.
class ForcedText {
 public:
  static constexpr bool forces_text = true;

  void start(const Request& request) {
    state_ = nullptr;
    if (request.constraint != nullptr) state_ = request.constraint->begin();
    read_ = request.prompt.size();
  }

  void rewind(int) {}  // reads tokens of the text only

  void propose(std::span<const Token> context, int most, std::vector<Token>& out, std::vector<float>& chances) {
    while (state_ != nullptr && read_ < context.size()) {
      if (!state_->advance(context[read_++])) state_ = nullptr;  // the answer has ended
    }
    if (state_ == nullptr || most <= 0) return;
    state_->forced(static_cast<std::size_t>(most), out);
    chances.resize(out.size(), 1.0f);
  }

 private:
  std::shared_ptr<ConstraintState> state_;
  std::size_t read_ = 0;  // tokens of the text that the state follows, prompt included
};

}}
