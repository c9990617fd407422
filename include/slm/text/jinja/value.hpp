// Values of a template: JSON's kinds and those that the language adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/text.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  range,
  iterator,  // of map, select and the like: it can be read once
  view,      // keys, values or items of a dict
  function,  // a global one
  method,    // a value's own
  macro,
  space,  // namespace(...)
  loop,
  cycler,
  joiner,
};

struct StringObject;
struct ListObject;
struct DictObject;
struct RangeObject;
struct IteratorObject;
struct ViewObject;
struct CallableObject;
struct Cell;

/// Counts the memory of a rendering's values.
struct Meter {
  std::size_t live = 0;
};

/// The data that copies of a value share. It is immutable, except for the position of an iterator.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter != nullptr) meter->live -= charged;
  }

  Meter* meter = nullptr;
  std::size_t charged = 0;
  int depth = 1;  // how deep values nest in it
};

/// Public members: one constructor, test and accessor for each type of Jinja.
class Value {
 public:
  Value() = default;  // undefined

  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value) {
    Value made(Kind::boolean);
    made.integer_ = value;
    return made;
  }
  static Value integer(std::int64_t value) {
    Value made(Kind::integer);
    made.integer_ = value;
    return made;
  }
  static Value real(double value) {
    Value made(Kind::real);
    made.real_ = value;
    return made;
  }
  static Value of(Kind kind, std::shared_ptr<const Object> object) {
    Value made(kind);
    made.object_ = std::move(object);
    return made;
  }
  static Value of(Kind kind, Cell* cell) {
    Value made(kind);
    made.cell_ = cell;
    return made;
  }
  static Value function(std::int64_t number) {
    Value made(Kind::function);
    made.integer_ = number;
    return made;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  std::int64_t whole() const { return integer_; }
  double number() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }

  inline const Text& text() const;
  inline std::size_t characters() const;
  std::string_view bytes() const { return text().bytes(); }
  inline const std::vector<Value>& items() const;
  const DictObject& dict() const;
  const RangeObject& range() const;
  const IteratorObject& iterator() const;
  const ViewObject& view() const;
  const CallableObject& callable() const;
  Cell* cell() const { return cell_; }
  const std::shared_ptr<const Object>& object() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

  /// Text that `safe` or `escape` made: `+` escapes what is joined to it.
  bool is_safe() const { return safe_; }
  Value safe() const {
    Value made = *this;
    made.safe_ = true;
    return made;
  }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::undefined;
  bool safe_ = false;
  union {
    std::int64_t integer_ = 0;
    double real_;
    Cell* cell_;
  };
  std::shared_ptr<const Object> object_;
};

/// A string; of an undefined value, what its use is answered with.
struct StringObject : Object {
  Text text;
  std::size_t characters = 0;
};

/// A list or a tuple.
struct ListObject : Object {
  std::vector<Value> items;
  bool group = false;  // of groupby: the first is its `grouper`, the second its `list`
};

struct DictObject : Object {
  std::vector<std::pair<Value, Value>> items;
  std::map<std::string_view, std::size_t> places;  // of the keys that are strings, where there are many
};

struct RangeObject : Object {
  std::int64_t start = 0, step = 1, count = 0;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  mutable std::size_t next = 0;
};

struct ViewObject : Object {
  enum class Part { keys, values, items } part = Part::keys;
  Value dict;
};

struct Node;

/// A macro, or a method with its value.
struct CallableObject : Object {
  const Node* macro = nullptr;
  std::vector<std::pair<std::uint32_t, Value>> captured;  // names around the macro's definition
  Value self;
  int method = 0;
};

/// A value that changes. Cells can hold each other, so a rendering owns them all, and values refer to them.
struct Cell {
  virtual ~Cell() = default;
};

struct SpaceCell : Cell {
  std::map<std::string, Value, std::less<>> members;
};

struct CyclerCell : Cell {
  std::vector<Value> items;
  std::size_t at = 0;
};

struct JoinerCell : Cell {
  Value separator;
  bool used = false;
};

inline const Text& Value::text() const { return static_cast<const StringObject&>(*object_).text; }
inline std::size_t Value::characters() const { return static_cast<const StringObject&>(*object_).characters; }
inline const std::vector<Value>& Value::items() const { return static_cast<const ListObject&>(*object_).items; }
inline const DictObject& Value::dict() const { return static_cast<const DictObject&>(*object_); }
inline const RangeObject& Value::range() const { return static_cast<const RangeObject&>(*object_); }
inline const IteratorObject& Value::iterator() const { return static_cast<const IteratorObject&>(*object_); }
inline const ViewObject& Value::view() const { return static_cast<const ViewObject&>(*object_); }
inline const CallableObject& Value::callable() const { return static_cast<const CallableObject&>(*object_); }

}}}
