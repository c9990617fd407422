// Renders a program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/runtime.hpp"
#include "slm/text/jinja/syntax.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

Filter filter_function(Entry entry);
Test test_function(Entry entry);
Method method_function(int number);

/// The number of a global function; -1 for other names.
int function_named(std::string_view name);
Value call_function(Runtime& runtime, std::int64_t number, const Call& call);

/// A loop while it runs, and what `loop` says of it.
struct LoopCell : Cell {
  const Node* node = nullptr;
  Value source;              // what it iterates over, as a list
  std::size_t next = 0;      // the next item of the source
  std::vector<Value> ahead;  // items that passed the loop's test and were asked for early, last first
  Value current, previous, changed;
  bool has_changed = false;
  std::int64_t index0 = -1, depth0 = 0;
  std::size_t base = 0, locals = 0;                       // the names that its test sees, in the evaluator's list
  std::vector<std::pair<std::uint32_t, Value>> captured;  // names around it, where it may be called
};

class Evaluator final : public Runtime {
 public:
  Evaluator(const Program& program, const Limits& limits, std::size_t given, const Date& date)
      : Runtime(limits, given, date), program_(program), root_(program.symbols.size()) {
    for (std::uint32_t symbol = 0; symbol < root_.size(); ++symbol) {
      const int number = function_named(program.symbols.name(symbol));
      if (number >= 0) root_[symbol] = Value::function(number);
    }
  }

  void set_variable(std::string_view name, const Value& value) {
    if (const auto symbol = program_.symbols.find(name)) root_[*symbol] = value;
  }

  Text run() {
    Text out;
    out_ = &out;
    run(program_.body);
    return out;
  }

  /// Where in the source it is.
  std::uint32_t at() const { return at_; }

  const Value* own(const Value& value, std::string_view name, Value& made) override;

 private:
  enum class Flow { on, leave, next };
  using Captured = std::vector<std::pair<std::uint32_t, Value>>;

  /// Counts expressions and blocks inside each other.
  class Frame {
   public:
    Frame(Evaluator& evaluator, const Node& node) : frames_(evaluator.frames_) {
      evaluator.heap.spend(1);
      evaluator.at_ = node.at;
      if (frames_ >= evaluator.heap.limits().frames || evaluator.stack_.is_used_up()) {
        fail_limit("macros, loops and expressions nest too deep");
      }
      ++frames_;
    }
    ~Frame() { --frames_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    int& frames_;
  };

  /// Names that end with a block.
  class Scope {
   public:
    explicit Scope(Evaluator& evaluator)
        : evaluator_(evaluator), size_(evaluator.locals_.size()), begin_(std::exchange(evaluator.scope_begin_, size_)) {
      ++evaluator.scopes_;
    }
    ~Scope() {
      evaluator_.locals_.resize(size_);
      evaluator_.scope_begin_ = begin_;
      --evaluator_.scopes_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Evaluator& evaluator_;
    std::size_t size_, begin_;
  };

  /// A scope that does not see the names around its call.
  class Function {
   public:
    explicit Function(Evaluator& evaluator)
        : evaluator_(evaluator), scope_(evaluator), base_(std::exchange(evaluator.base_, evaluator.locals_.size())) {
      if (++evaluator.calls_ > evaluator.heap.limits().calls) {
        --evaluator.calls_;
        evaluator.base_ = base_;
        fail_limit(text("macros or loops call each other more than ", evaluator.heap.limits().calls, " levels deep"));
      }
    }
    ~Function() {
      evaluator_.base_ = base_;
      --evaluator_.calls_;
    }
    Function(const Function&) = delete;
    Function& operator=(const Function&) = delete;

   private:
    Evaluator& evaluator_;
    Scope scope_;
    std::size_t base_;
  };

  /// Hides the names of a loop's body from the loop's test.
  class Outside {
   public:
    Outside(Evaluator& evaluator, const LoopCell& cell)
        : evaluator_(evaluator),
          hidden_(evaluator.locals_.begin() + static_cast<std::ptrdiff_t>(cell.locals), evaluator.locals_.end()),
          base_(std::exchange(evaluator.base_, cell.base)) {
      evaluator.heap.spend(hidden_.size());
      evaluator.locals_.resize(cell.locals);
    }
    ~Outside() {
      evaluator_.base_ = base_;
      evaluator_.locals_.insert(evaluator_.locals_.end(), std::make_move_iterator(hidden_.begin()),
                                std::make_move_iterator(hidden_.end()));
    }
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    Evaluator& evaluator_;
    std::vector<std::pair<std::uint32_t, Value>> hidden_;
    std::size_t base_;
  };

  /// Sends output elsewhere.
  class Capture {
   public:
    explicit Capture(Evaluator& evaluator) : evaluator_(evaluator), before_(std::exchange(evaluator.out_, &text)) {}
    ~Capture() { evaluator_.out_ = before_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    Text text;

   private:
    Evaluator& evaluator_;
    Text* before_;
  };

  // --- names ---

  Value lookup(std::uint32_t symbol) {
    for (std::size_t i = locals_.size(); i-- > base_;) {
      if (locals_[i].first == symbol) {
        heap.spend((locals_.size() - i) / 16);
        return locals_[i].second;
      }
    }
    heap.spend((locals_.size() - base_) / 16);
    const Value& value = root_[symbol];
    if (value.is_undefined() && !value.object()) {
      return heap.undefined(text(quote(program_.symbols.name(symbol)), " is undefined"));
    }
    return value;
  }

  void set(std::uint32_t symbol, Value value) {
    if (scopes_ == 0) {
      root_[symbol] = std::move(value);
      return;
    }
    for (std::size_t i = scope_begin_; i < locals_.size(); ++i) {
      if (locals_[i].first != symbol) continue;
      locals_[i].second = std::move(value);
      return;
    }
    heap.spend((locals_.size() - scope_begin_) / 16);
    locals_.emplace_back(symbol, std::move(value));
  }

  void assign(const Node& target, Value value);

  /// The names around a macro that is not at the top of the template.
  Captured captured() {
    heap.spend(locals_.size() - base_);
    return {locals_.begin() + static_cast<std::ptrdiff_t>(base_), locals_.end()};
  }

  // --- expressions ---

  Value evaluate(const Node& node);
  Value chain(const Node& node);
  Value compare(const Node& node);
  Value join(const Node& node);
  Value list(const Node& node);
  Value dict(const Node& node);
  Value slice(const Node& node);
  Value either(const Node& node, bool until);
  Value filter(const Node& node);
  Value test(const Node& node);
  Value called(const Node& node);
  Call arguments(const Arguments& given);
  Value call(const Value& callee, const Call& call);
  Value call_macro(const Value& macro, const Call& call);
  Value call_loop(const Value& loop, const Call& call);
  void bind(const CallableObject& macro, const Call& call);

  // --- statements ---

  void put(const Text& text) { heap.append(*out_, text); }

  Flow run(const std::vector<NodePtr>& body) {
    for (const NodePtr& node : body) {
      if (const Flow flow = run(*node); flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow run(const Node& node);
  Flow branch(const Node& node);
  Flow scoped(const Node& node);
  Flow with(const Node& node);
  Flow assign_block(const Node& node);
  Flow filter_block(const Node& node);
  void print(const Node& node);
  void call_block(const Node& node);
  Value macro(const Node& node);
  Flow loop(const Node& node);
  Flow iterate(LoopCell& cell);
  std::optional<Value> fetch(LoopCell& cell);
  std::optional<Value> next_item(LoopCell& cell);

  const Program& program_;
  std::vector<Value> root_;
  Captured locals_;
  std::size_t base_ = 0;         // the first local name that is visible
  std::size_t scope_begin_ = 0;  // the first one of the innermost block
  int scopes_ = 0, calls_ = 0, frames_ = 0;
  StackGuard stack_{heap.limits()};
  Text* out_ = nullptr;
  Value piped_;  // what a filter block's filters begin with
  std::uint32_t at_ = 0;
};

}}}
