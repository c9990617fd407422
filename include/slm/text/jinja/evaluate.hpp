// Expressions: how a rendering finds their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/text/jinja/evaluator.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline Value Evaluator::evaluate(const Node& node) {
  const Frame frame(*this, node);
  switch (node.op) {
    case Op::constant: return node.value;
    case Op::name: return lookup(node.symbol);
    case Op::list:
    case Op::tuple: return list(node);
    case Op::dict: return dict(node);
    case Op::slice: fail("a slice is outside a subscript");
    case Op::attribute: {
      const Value value = evaluate(*node.kids[0]);
      at_ = node.at;
      heap.spend(2);
      return attribute(value, node.value);
    }
    case Op::item:
      if (node.kids[1]->op == Op::slice) return slice(node);
      {
        const Value value = evaluate(*node.kids[0]), key = evaluate(*node.kids[1]);
        at_ = node.at;
        return item(value, key);
      }
    case Op::call: return called(node);
    case Op::filter: return filter(node);
    case Op::test: return test(node);
    case Op::negate: return negated(evaluate(*node.kids[0]));
    case Op::plus: {
      const Value value = evaluate(*node.kids[0]);
      need(value);
      if (!value.is_number()) fail(text("`+` does not apply to the type ", type_name(value)));
      return value.is(Kind::boolean) ? Value::integer(value.whole()) : value;
    }
    case Op::invert: return Value::boolean(!is_true(evaluate(*node.kids[0])));
    case Op::power: {
      const Value base = evaluate(*node.kids[0]), exponent = evaluate(*node.kids[1]);
      at_ = node.at;
      return raised(base, exponent);
    }
    case Op::chain: return chain(node);
    case Op::join: return join(node);
    case Op::compare: return compare(node);
    case Op::either: return either(node, true);
    case Op::both: return either(node, false);
    case Op::condition: {
      const bool holds = is_true(evaluate(*node.kids[0]));
      const NodePtr& chosen = node.kids[holds ? 1 : 2];
      return chosen ? evaluate(*chosen) : heap.undefined("the condition has no `else`");
    }
    default: fail("a tag is inside an expression");
  }
}

inline Value Evaluator::chain(const Node& node) {
  Value value = evaluate(*node.kids[0]);
  for (std::size_t i = 1; i < node.kids.size(); ++i) {
    const Value right = evaluate(*node.kids[i]);
    at_ = node.at;
    value = arithmetic(heap, node.parts->signs[i - 1], value, right);
  }
  return value;
}

inline Value Evaluator::compare(const Node& node) {
  Value left = evaluate(*node.kids[0]);
  for (std::size_t i = 1; i < node.kids.size(); ++i) {
    Value right = evaluate(*node.kids[i]);
    at_ = node.at;
    if (!compared(heap, node.parts->signs[i - 1], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

inline Value Evaluator::join(const Node& node) {
  Text out;
  for (const NodePtr& kid : node.kids) {
    const Value value = evaluate(*kid);
    at_ = node.at;
    Printer(heap, out).str(value);
  }
  return heap.string(std::move(out));
}

inline Value Evaluator::list(const Node& node) {
  std::vector<Value> items;
  for (const NodePtr& kid : node.kids) items.push_back(evaluate(*kid));
  return heap.list(std::move(items), node.op == Op::list ? Kind::list : Kind::tuple);
}

inline Value Evaluator::dict(const Node& node) {
  DictBuilder made(heap);
  for (std::size_t i = 0; i < node.kids.size(); i += 2) {
    Value key = evaluate(*node.kids[i]);
    made.set(std::move(key), evaluate(*node.kids[i + 1]));
  }
  return made.take();
}

inline Value Evaluator::slice(const Node& node) {
  const Value value = evaluate(*node.kids[0]);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const NodePtr& kid = node.kids[1]->kids[i];
    bounds[i] = kid ? evaluate(*kid) : Value::none();
  }
  at_ = node.at;
  return sliced(heap, value, bounds[0], bounds[1], bounds[2]);
}

/// The first part whose truth is `until`, else the last.
inline Value Evaluator::either(const Node& node, bool until) {
  Value value;
  for (const NodePtr& kid : node.kids) {
    value = evaluate(*kid);
    if (is_true(value) == until) break;
  }
  return value;
}

inline Value Evaluator::filter(const Node& node) {
  const Value value = node.kids[0] ? evaluate(*node.kids[0]) : piped_;
  const Call call = node.parts ? arguments(node.parts->arguments) : Call{};
  at_ = node.at;
  if (node.entry == 0) fail(text("there is no filter named ", quote(node.value.bytes())));
  return filter_function(node.entry)(*this, value, call);
}

inline Value Evaluator::test(const Node& node) {
  const Value value = evaluate(*node.kids[0]);
  const Call call = node.parts ? arguments(node.parts->arguments) : Call{};
  at_ = node.at;
  if (node.entry == 0) fail(text("there is no test named ", quote(node.value.bytes())));
  return Value::boolean(test_function(node.entry)(*this, value, call));
}

inline Call Evaluator::arguments(const Arguments& given) {
  Call call;
  for (const NodePtr& value : given.positional) call.positional.push_back(evaluate(*value));
  heap.spend(2 + given.named.size());
  for (const auto& [name, value] : given.named) call.named.emplace_back(name, evaluate(*value));
  if (given.list) {
    const Value more = sequence_of(heap, evaluate(*given.list));
    heap.spend(more.items().size() / 2);
    call.positional.insert(call.positional.end(), more.items().begin(), more.items().end());
  }
  if (given.dict) {
    const Value more = evaluate(*given.dict);
    if (!more.is(Kind::dict)) fail("the value behind `**` is no dict");
    heap.spend(2 * more.dict().items.size());
    for (const auto& [name, value] : more.dict().items) {
      if (!name.is_string()) fail("the name of an argument is no string");
      heap.spend_bytes(name.bytes().size());
      call.named.emplace_back(name.bytes(), value);
    }
  }
  return call;
}

inline Value Evaluator::called(const Node& node) {
  const Value callee = evaluate(*node.kids[0]);
  const Call given = arguments(node.parts->arguments);
  at_ = node.at;
  return call(callee, given);
}

inline Value Evaluator::call(const Value& callee, const Call& given) {
  switch (callee.kind()) {
    case Kind::undefined: fail(undefined_message(callee));
    case Kind::function: return call_function(*this, callee.whole(), given);
    case Kind::method: return method_function(callee.callable().method)(*this, callee.callable().self, given);
    case Kind::macro: return call_macro(callee, given);
    case Kind::loop: return call_loop(callee, given);
    case Kind::joiner: {
      auto& joiner = *static_cast<JoinerCell*>(callee.cell());
      return std::exchange(joiner.used, true) ? joiner.separator : heap.string("");
    }
    default: fail(text("a value of type ", type_name(callee), " cannot be called"));
  }
}

/// Gives the parameters of a macro their values, in its scope.
inline void Evaluator::bind(const CallableObject& macro, const Call& call) {
  const Node& node = *macro.macro;
  const Parts& parts = *node.parts;
  heap.spend(macro.captured.size());
  for (const auto& [symbol, value] : macro.captured) locals_.emplace_back(symbol, value);
  scope_begin_ = locals_.size();
  const std::size_t count = parts.names.size();
  heap.spend(2 * count + call.named.size() * (1 + count / 4));
  if (call.positional.size() > count && !parts.takes_list) {
    fail(text("the macro ", quote(node.value.bytes()), " takes at most ", count, " arguments, got ",
              call.positional.size()));
  }
  std::vector<const Value*> values(count, nullptr);
  for (std::size_t i = 0; i < std::min(count, call.positional.size()); ++i) values[i] = &call.positional[i];
  DictBuilder more(heap);
  const Value* caller = nullptr;
  for (const auto& [name, value] : call.named) {
    std::size_t place = 0;
    while (place < count && program_.symbols.name(parts.names[place]) != name) ++place;
    if (place < count && values[place] == nullptr) {
      values[place] = &value;
    } else if (place < count) {
      fail(text("the macro ", quote(node.value.bytes()), " got the argument ", quote(name), " twice"));
    } else if (name == "caller" && parts.takes_caller) {
      caller = &value;
    } else if (parts.takes_dict) {
      more.set(heap.string(name), value);
    } else {
      fail(text("the macro ", quote(node.value.bytes()), " has no parameter ", quote(name)));
    }
  }
  const std::size_t required = count - parts.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != nullptr) {
      set(parts.names[i], *values[i]);
    } else if (i >= required) {
      set(parts.names[i], evaluate(*parts.defaults[i - required]));
    } else {
      set(parts.names[i],
          heap.undefined(text("the parameter ", quote(program_.symbols.name(parts.names[i])), " was not provided")));
    }
  }
  if (parts.takes_caller) {
    set(program_.caller, caller != nullptr ? *caller : heap.undefined("the macro was called without a block"));
  }
  if (parts.takes_dict) set(program_.kwargs, more.take());
  if (!parts.takes_list) return;
  std::vector<Value> rest;
  if (call.positional.size() > count) heap.spend((call.positional.size() - count) / 2);
  for (std::size_t i = count; i < call.positional.size(); ++i) rest.push_back(call.positional[i]);
  set(program_.varargs, heap.tuple(std::move(rest)));
}

inline Value Evaluator::call_macro(const Value& macro, const Call& given) {
  const Node& node = *macro.callable().macro;
  const Function function(*this);
  Capture capture(*this);
  if (!macro.callable().captured.empty()) locals_.emplace_back(node.symbol, macro);  // it may call itself
  bind(macro.callable(), given);
  run(node.parts->body);
  return heap.string(std::move(capture.text));
}

inline Value Evaluator::call_loop(const Value& loop, const Call& given) {
  const auto& outer = *static_cast<const LoopCell*>(loop.cell());
  if (!outer.node->parts->recursive) fail("only a loop that is `recursive` can be called");
  const Value source = sequence_of(heap, Given("loop", given, {"iterable"}).at(0));
  const Function function(*this);
  Capture capture(*this);
  auto& cell = heap.cell<LoopCell>();
  cell.node = outer.node;
  cell.source = source;
  cell.depth0 = outer.depth0 + 1;
  cell.captured = outer.captured;
  heap.spend(cell.captured.size());
  for (const auto& [symbol, value] : cell.captured) locals_.emplace_back(symbol, value);
  scope_begin_ = locals_.size();
  iterate(cell);
  return heap.string(std::move(capture.text));
}

}}}
