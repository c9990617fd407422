// SchemaAtoms: takes schemas apart. A schema is a conjunction of atoms: the keywords of one object, or one keyword with
// alternatives. allOf and $ref disappear.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/cursor.hpp"
#include "slm/grammar/json_text.hpp"
#include "slm/grammar/schema_paths.hpp"
#include "slm/grammar/schema_references.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// One part of a schema, with the JSON pointer of its object.
struct Atom {
  enum class Part : std::uint8_t { keywords, any_of, one_of, enumeration, constant, never };

  const JsonText* node;
  Part part;
  std::string path;
};
using Atoms = std::vector<Atom>;

class SchemaAtoms {
 public:
  SchemaAtoms(JsonText& root, const GrammarLimits& limits) : references_(root), limits_(limits) {}

  /// Adds the atoms of a schema in the order of its keywords. Atoms that are there already count once.
  void expand(const JsonText& schema, const std::string& path, Atoms& atoms) {
    if (schema.is(JsonText::Type::boolean)) {
      if (!schema.truth) add(atoms, {&schema, Atom::Part::never, path});
      return;
    }
    if (!schema.is_object()) fail_schema(path, "a schema is an object, true or false");
    if (std::find(open_.begin(), open_.end(), &schema) != open_.end()) {
      fail_schema(path, "the schema refers to itself without end");
    }
    if (open_.size() >= static_cast<std::size_t>(limits_.nesting))
      fail_limit("references and allOf are nested too deep");
    open_.push_back(&schema);
    bool added = false;
    for (std::size_t i = 0; i < schema.names.size(); ++i) {
      const std::string& name = schema.names[i];
      const JsonText& value = schema.items[i];
      if (name == "$ref") {
        refer(schema, value, path, atoms);
      } else if (name == "allOf") {
        const std::string place = child_path(path, name);
        check_list(value, place);
        for (std::size_t k = 0; k < value.items.size(); ++k) {
          expand(value.items[k], child_path(place, std::to_string(k)), atoms);
        }
      } else if (name == "anyOf" || name == "oneOf") {
        check_list(value, child_path(path, name));
        add(atoms, {&schema, name == "anyOf" ? Atom::Part::any_of : Atom::Part::one_of, path});
      } else if (name == "enum") {
        if (!value.is(JsonText::Type::array)) fail_schema(child_path(path, name), "expected a list of values");
        add(atoms, {&schema, Atom::Part::enumeration, path});
      } else if (name == "const") {
        add(atoms, {&schema, Atom::Part::constant, path});
      } else if (is_unsupported(schema, name)) {
        fail_keyword(path, name);
      } else if (!added && is_constraint(name)) {
        added = true;
        add(atoms, {&schema, Atom::Part::keywords, path});
      }
    }
    open_.pop_back();
  }

  Atoms expanded(const JsonText& schema, const std::string& path) {
    Atoms atoms;
    open_.clear();
    expand(schema, path, atoms);
    return atoms;
  }

  /// Adds an atom unless it is there.
  static void add(Atoms& atoms, Atom atom) {
    const bool known = std::any_of(atoms.begin(), atoms.end(), [&](const Atom& other) {
      return other.node == atom.node && other.part == atom.part;
    });
    if (!known) atoms.push_back(std::move(atom));
  }

 private:
  static void check_list(const JsonText& value, const std::string& path) {
    if (!value.is(JsonText::Type::array) || value.items.empty()) fail_schema(path, "expected a list of schemas");
  }

  static bool is_unsupported(const JsonText& schema, const std::string& name) {
    if (name == "if") return schema.find("then") != nullptr || schema.find("else") != nullptr;
    return name == "not" || name == "$dynamicRef" || name == "$recursiveRef";
  }

  static bool is_constraint(const std::string& name) {
    static constexpr std::array<std::string_view, 31> names{"type",
                                                            "properties",
                                                            "required",
                                                            "additionalProperties",
                                                            "patternProperties",
                                                            "minProperties",
                                                            "maxProperties",
                                                            "propertyNames",
                                                            "dependentRequired",
                                                            "dependentSchemas",
                                                            "dependencies",
                                                            "unevaluatedProperties",
                                                            "items",
                                                            "prefixItems",
                                                            "additionalItems",
                                                            "minItems",
                                                            "maxItems",
                                                            "uniqueItems",
                                                            "contains",
                                                            "minContains",
                                                            "maxContains",
                                                            "unevaluatedItems",
                                                            "minLength",
                                                            "maxLength",
                                                            "pattern",
                                                            "format",
                                                            "minimum",
                                                            "maximum",
                                                            "exclusiveMinimum",
                                                            "exclusiveMaximum",
                                                            "multipleOf"};
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  void refer(const JsonText& schema, const JsonText& value, const std::string& path, Atoms& atoms) {
    const std::string place = child_path(path, "$ref");
    if (!value.is(JsonText::Type::string)) fail_schema(place, "expected a text");
    const SchemaReferences::Target target = references_.find(schema, value.text, place);
    expand(*target.schema, target.path, atoms);
  }

  const SchemaReferences references_;
  const GrammarLimits& limits_;
  std::vector<const JsonText*> open_;  // schemas that are being expanded
};

}}}
