// The syntax tree of a template.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/value.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

enum class Op : std::uint8_t {
  // expressions
  constant,
  name,
  list,
  tuple,
  dict,
  attribute,
  item,
  slice,
  call,
  filter,
  test,
  negate,
  plus,
  invert,
  power,
  chain,
  join,
  compare,
  either,
  both,
  condition,
  // statements
  data,
  print,
  branch,
  loop,
  leave,
  next,
  assign,
  assign_block,
  with,
  macro,
  call_block,
  filter_block,
  scope,
  missing,
};

/// The operators between the parts of a chain or a comparison.
enum class Sign : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor,
  modulo,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

/// A filter or a test; the evaluator's table has its function. 0: there is none of that name.
using Entry = std::uint16_t;

/// The numbers of the evaluator's filters and tests; 0 for an unknown name.
Entry filter_named(std::string_view name);
Entry test_named(std::string_view name);

struct Arguments {
  std::vector<NodePtr> positional;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr list, dict;  // of *list and **dict
};

/// Data that only few nodes have.
struct Parts {
  std::vector<NodePtr> body, otherwise;
  Arguments arguments;
  std::vector<Sign> signs;                                            // kids.size() - 1 of them
  std::vector<std::uint32_t> names;                                   // parameters of a macro
  std::vector<NodePtr> defaults;                                      // of its last parameters
  bool recursive = false;                                             // a loop that its body may call
  bool takes_list = false, takes_dict = false, takes_caller = false;  // the macro reads varargs, kwargs, caller
};

/// kids by kind:
///   list, tuple, join, chain, compare, either, both: the parts; dict: key, value, ...; condition: test, value, other
///   attribute, negate, plus, invert, call, filter, test: the operand; item: operand, index; slice: start, stop, step
///   print: the value; branch: the tests, with parts->body of scopes; loop: target, items, test
///   assign: target, value; with: target, value, ...; filter_block, call_block: the filter, the call
struct Node {
  Op op;
  std::uint8_t depth = 1;    // how deep nodes nest in it
  Entry entry = 0;           // of a filter or a test
  std::uint32_t at = 0;      // where it begins in the source
  std::uint32_t symbol = 0;  // of a name, a macro
  Value value;               // of a constant; an attribute's name; data's text
  std::vector<NodePtr> kids;
  std::unique_ptr<Parts> parts;
};

/// Numbers of the names of a template.
class Symbols {
 public:
  std::uint32_t of(std::string_view name) {
    const auto [place, is_new] = numbers_.try_emplace(std::string{name}, static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(place->first);
    return place->second;
  }
  std::optional<std::uint32_t> find(std::string_view name) const {
    const auto place = numbers_.find(name);
    return place == numbers_.end() ? std::nullopt : std::optional{place->second};
  }
  const std::string& name(std::uint32_t symbol) const { return names_[symbol]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> names_;
};

/// A template that is compiled. It does not change.
struct Program {
  std::string source;
  Symbols symbols;
  std::uint32_t loop = symbols.of("loop"), caller = symbols.of("caller");
  std::uint32_t varargs = symbols.of("varargs"), kwargs = symbols.of("kwargs");
  std::vector<NodePtr> body;
};

}}}
