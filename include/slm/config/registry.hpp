// Registry: a list of compile-time configs, and the way from a run-time shape to one of them.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "slm/config/model_config.hpp"

namespace slm {

/// A config is an empty type with a name and a constexpr value; Dynamic is one that carries its value at run time.
template <class C>
concept Config = requires(const C& config) {
  { C::name } -> std::convertible_to<std::string_view>;
  { config.value } -> std::convertible_to<const ModelConfig&>;
};

/// The same model text, reading its shape at run time: for checkpoints outside the registry.
struct Dynamic {
  static constexpr std::string_view name = "dynamic";
  ModelConfig value;
};

/// A config whose shape is a constant.
template <class C>
concept StaticConfig = Config<C> && std::is_empty_v<C>;

template <StaticConfig... Models>
struct Registry {
  static_assert((fault_of(Models::value).empty() && ...), "a registered config has an unsound shape");
};

/// Calls f(Model{}) for the first config of this shape; false when there is none.
template <class... Models, class F>
bool visit(Registry<Models...>, const ModelConfig& shape, F&& f) {
  return ((Models::value == shape && (f(Models{}), true)) || ...);
}

namespace detail {

template <class F>
void for_each_field(const ModelConfig& shape, F&& f) {
  f("layers", shape.layers);
  f("hidden", shape.hidden);
  f("ffn", shape.ffn);
  f("heads", shape.heads);
  f("kv_heads", shape.kv_heads);
  f("head_dim", shape.head_dim);
  f("vocab", shape.vocab);
}

}  // namespace detail

/// "layers 32 instead of 12, ffn 14336 instead of 11008"
inline std::string difference(const ModelConfig& found, const ModelConfig& known) {
  int known_values[7];
  int field = 0;
  detail::for_each_field(known, [&](const char*, int value) { known_values[field++] = value; });
  std::string list;
  field = 0;
  detail::for_each_field(found, [&](const char* name, int value) {
    if (const int expected = known_values[field++]; value != expected) {
      list += text(list.empty() ? "" : ", ", name, " ", value, " instead of ", expected);
    }
  });
  return list;
}

/// The source of a config struct, ready to paste.
inline std::string source_of(const ModelConfig& shape, std::string_view name) {
  std::string fields;
  detail::for_each_field(shape, [&](const char* field, int value) {
    fields += text(fields.empty() ? "" : ", ", ".", field, " = ", value);
  });
  return text("struct ", name, " { static constexpr std::string_view name = \"", name,
              "\"; static constexpr slm::ModelConfig value{", fields, "}; };");
}

/// The Error for a shape that no config of the registry has.
template <class... Models>
Error not_registered(Registry<Models...>, const ModelConfig& shape, std::string_view where) {
  int fewest = 8;
  std::string closest = "The registry is empty";
  [[maybe_unused]] const auto compare = [&](const ModelConfig& known, std::string_view name) {
    int known_values[7];
    int field = 0;
    int differing = 0;
    detail::for_each_field(known, [&](const char*, int value) { known_values[field++] = value; });
    field = 0;
    detail::for_each_field(shape, [&](const char*, int value) { differing += value != known_values[field++]; });
    if (differing < fewest) {
      fewest = differing;
      closest = text("The closest one, ", name, ", differs: ", difference(shape, known));
    }
  };
  (compare(Models::value, Models::name), ...);
  return Error("config.not-registered", text("no registered config has the shape of ", where, ". ", closest),
               text("Add this to your registry, or allow the Dynamic fallback: ", source_of(shape, "MyModel")));
}

}  // namespace slm
