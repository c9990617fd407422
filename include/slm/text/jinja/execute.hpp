// Statements: what a rendering does for tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/evaluate.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline Evaluator::Flow Evaluator::run(const Node& node) {
  const Frame frame(*this, node);
  switch (node.op) {
    case Op::data: put(node.value.text()); return Flow::on;
    case Op::print: print(node); return Flow::on;
    case Op::branch: return branch(node);
    case Op::loop: return loop(node);
    case Op::leave: return Flow::leave;
    case Op::next: return Flow::next;
    case Op::assign: assign(*node.kids[0], evaluate(*node.kids[1])); return Flow::on;
    case Op::assign_block: return assign_block(node);
    case Op::filter_block: return filter_block(node);
    case Op::with: return with(node);
    case Op::scope: return scoped(node);
    case Op::macro: set(node.symbol, macro(node)); return Flow::on;
    case Op::call_block: call_block(node); return Flow::on;
    default: fail("an expression is used as a tag");
  }
}

inline void Evaluator::print(const Node& node) {
  const Value value = evaluate(*node.kids[0]);
  at_ = node.kids[0]->at;
  if (value.is_string()) return put(value.text());
  Text text;
  Printer(heap, text).str(value);
  put(text);
}

inline Evaluator::Flow Evaluator::branch(const Node& node) {
  for (std::size_t i = 0; i < node.kids.size(); ++i) {
    if (is_true(evaluate(*node.kids[i]))) return run(node.parts->body[i]->parts->body);
  }
  return run(node.parts->otherwise);
}

inline Evaluator::Flow Evaluator::scoped(const Node& node) {
  const Scope scope(*this);
  return run(node.parts->body);
}

inline Evaluator::Flow Evaluator::with(const Node& node) {
  std::vector<Value> values;
  for (std::size_t i = 0; i < node.kids.size(); i += 2) values.push_back(evaluate(*node.kids[i + 1]));
  const Scope scope(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*node.kids[2 * i], std::move(values[i]));
  return run(node.parts->body);
}

inline void Evaluator::assign(const Node& target, Value value) {
  if (target.op == Op::name) return set(target.symbol, std::move(value));
  at_ = target.at;
  if (target.op == Op::attribute) {
    const Value space = lookup(target.kids[0]->symbol);
    if (!space.is(Kind::space)) fail("only attributes of a namespace can be set");
    if (target.value.bytes().starts_with("_")) {
      fail(text("a namespace cannot hold the name ", quote(target.value.bytes()), ", which begins with `_`"));
    }
    auto& members = static_cast<SpaceCell*>(space.cell())->members;
    heap.spend(8);
    const auto [place, is_new] = members.try_emplace(std::string{target.value.bytes()});
    if (is_new) heap.charge(128 + target.value.bytes().size());
    place->second = std::move(value);
    return;
  }
  if (value.is_undefined() || !is_iterable(value)) fail(text("a value of type ", type_name(value), " has no parts"));
  const Value parts = sequence_of(heap, value);
  if (parts.items().size() != target.kids.size()) {
    fail(text("expected ", target.kids.size(), " values to assign, found ", parts.items().size()));
  }
  for (std::size_t i = 0; i < target.kids.size(); ++i) assign(*target.kids[i], parts.items()[i]);
}

inline Evaluator::Flow Evaluator::assign_block(const Node& node) {
  Value value;
  {
    Capture capture(*this);
    const Scope scope(*this);
    if (const Flow flow = run(node.parts->body); flow != Flow::on) return flow;
    value = heap.string(std::move(capture.text));
  }
  if (node.kids[1]) {
    piped_ = std::move(value);
    value = evaluate(*node.kids[1]);
  }
  assign(*node.kids[0], std::move(value));
  return Flow::on;
}

inline Evaluator::Flow Evaluator::filter_block(const Node& node) {
  {
    Capture capture(*this);
    const Scope scope(*this);
    if (const Flow flow = run(node.parts->body); flow != Flow::on) return flow;
    piped_ = heap.string(std::move(capture.text));
  }
  print(node);
  return Flow::on;
}

inline Value Evaluator::macro(const Node& node) {
  auto made = std::make_unique<CallableObject>();
  made->macro = &node;
  if (scopes_ > 0) made->captured = captured();
  return heap.callable(Kind::macro, std::move(made));
}

inline void Evaluator::call_block(const Node& node) {
  const Node& call_node = *node.kids[0];
  const Value callee = evaluate(*call_node.kids[0]);
  Call given = arguments(call_node.parts->arguments);
  given.named.emplace_back("caller", macro(*node.kids[1]));
  at_ = call_node.at;
  const Value value = call(callee, given);
  Text text;
  Printer(heap, text).str(value);
  put(text);
}

inline Evaluator::Flow Evaluator::loop(const Node& node) {
  const Value source = sequence_of(heap, evaluate(*node.kids[1]));
  auto& cell = heap.cell<LoopCell>();
  cell.node = &node;
  cell.source = source;
  if (node.parts->recursive) cell.captured = captured();
  return iterate(cell);
}

inline Evaluator::Flow Evaluator::iterate(LoopCell& cell) {
  const Node& node = *cell.node;
  /// An ended loop holds nothing any more, but its numbers.
  struct End {
    LoopCell& cell;
    ~End() {
      cell.ahead.clear();
      cell.captured.clear();
      cell.source = cell.current = cell.previous = cell.changed = Value();
    }
  };
  const End end{cell};
  cell.base = base_;
  cell.locals = locals_.size();
  bool completed = false;  // `else` is for loops of which no turn came to its end, as in jinja2
  while (auto found = next_item(cell)) {
    cell.previous = std::exchange(cell.current, *found);
    ++cell.index0;
    const Scope scope(*this);
    assign(*node.kids[0], *std::move(found));
    set(program_.loop, Value::of(Kind::loop, &cell));
    const Flow flow = run(node.parts->body);
    completed = completed || flow == Flow::on;
    if (flow == Flow::leave) break;
  }
  if (completed) return Flow::on;
  const Scope scope(*this);
  return run(node.parts->otherwise);
}

inline std::optional<Value> Evaluator::next_item(LoopCell& cell) {
  if (cell.ahead.empty()) return fetch(cell);
  std::optional<Value> item = std::move(cell.ahead.back());
  cell.ahead.pop_back();
  return item;
}

/// The next item of the source that passes the loop's test.
inline std::optional<Value> Evaluator::fetch(LoopCell& cell) {
  if (cell.source.is_undefined()) return std::nullopt;
  const Node& node = *cell.node;
  while (cell.next < cell.source.items().size()) {
    Value item = cell.source.items()[cell.next++];
    heap.spend(1);
    if (!node.kids[2]) return item;
    const Outside outside(*this, cell);
    const Scope scope(*this);
    assign(*node.kids[0], item);
    if (is_true(evaluate(*node.kids[2]))) return item;
  }
  return std::nullopt;
}

inline const Value* Evaluator::own(const Value& value, std::string_view name, Value& made) {
  if (value.is(Kind::macro)) {
    if (name != "arguments") return nullptr;
    std::vector<Value> names;
    for (const auto symbol : value.callable().macro->parts->names) {
      names.push_back(heap.string(program_.symbols.name(symbol)));
    }
    return made = heap.tuple(std::move(names)), &made;
  }
  auto& cell = *static_cast<LoopCell*>(value.cell());
  const auto number = [&made](std::int64_t found) { return made = Value::integer(found), &made; };
  const auto peek = [&]() -> const Value* {
    if (cell.ahead.empty()) {
      auto found = fetch(cell);
      if (!found) return nullptr;
      cell.ahead.push_back(*std::move(found));
    }
    return &cell.ahead.back();
  };
  const auto length = [&] {
    const auto done = cell.index0 + 1 + static_cast<std::int64_t>(cell.ahead.size());
    if (cell.source.is_undefined()) return done;
    if (!cell.node->kids[2]) return static_cast<std::int64_t>(cell.source.items().size());
    std::vector<Value> rest;
    while (auto found = fetch(cell)) rest.push_back(*std::move(found));
    heap.charge(rest.size() * sizeof(Value));
    cell.ahead.insert(cell.ahead.begin(), rest.rbegin(), rest.rend());
    return done + static_cast<std::int64_t>(rest.size());
  };
  if (name == "index") return number(cell.index0 + 1);
  if (name == "index0") return number(cell.index0);
  if (name == "first") return made = Value::boolean(cell.index0 == 0), &made;
  if (name == "last") return made = Value::boolean(peek() == nullptr), &made;
  if (name == "length") return number(length());
  if (name == "revindex") return number(length() - cell.index0);
  if (name == "revindex0") return number(length() - cell.index0 - 1);
  if (name == "depth") return number(cell.depth0 + 1);
  if (name == "depth0") return number(cell.depth0);
  if (name == "previtem") {
    if (cell.index0 > 0) return &cell.previous;
    return made = heap.undefined("there is no previous item"), &made;
  }
  if (name == "nextitem") {
    if (const Value* next = peek()) return next;
    return made = heap.undefined("there is no next item"), &made;
  }
  return nullptr;
}

}}}
