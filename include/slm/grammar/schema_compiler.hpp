// SchemaCompiler: a JSON schema as an expression. Equal conjunctions of atoms are compiled once; those that contain
// themselves become rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/automaton.hpp"
#include "slm/grammar/json_terminals.hpp"
#include "slm/grammar/schema_atoms.hpp"
#include "slm/grammar/schema_keywords.hpp"
#include "slm/grammar/schema_scalars.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(JsonTerminals& terminals, JsonText& root)
      : terminals_(terminals),
        expressions_(terminals.expressions()),
        limits_(expressions_.limits()),
        root_(root),
        atoms_(root, limits_) {}

  Expression compile() { return compile(atoms_.expanded(root_, "")); }

 private:
  static constexpr int deepest = 300;
  static constexpr std::size_t most_conjunctions = 20'000;

  struct Entry {
    bool open = true;
    std::optional<std::uint32_t> rule;  // if it contains itself
    Expression expression = nothing;
  };

  Expression compile(const Atoms& atoms) {
    std::vector<std::pair<const JsonText*, Atom::Part>> key;
    for (const Atom& atom : atoms) key.emplace_back(atom.node, atom.part);
    const auto [found, is_new] = entries_.try_emplace(std::move(key));
    Entry& entry = found->second;
    if (!is_new) {
      if (!entry.open) return entry.expression;
      if (!entry.rule) {
        entry.rule = expressions_.add_rule(text("json_schema", atoms.empty() ? "" : excerpt(atoms.front().path)));
      }
      return expressions_.rule(*entry.rule);
    }
    if (entries_.size() > most_conjunctions) fail_limit("the schema combines too many alternatives");
    if (++depth_ > deepest) fail_limit("the schema is nested too deep");
    entry.expression = make(atoms);
    --depth_;
    if (entry.rule) {
      expressions_.rules()[*entry.rule] = entry.expression;
      entry.expression = expressions_.rule(*entry.rule);
    }
    entry.open = false;
    return entry.expression;
  }

  Expression make(const Atoms& atoms) {
    expressions_.check_time();
    for (const Atom& atom : atoms) {
      if (atom.part == Atom::Part::never) return nothing;
    }
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (atoms[i].part == Atom::Part::any_of || atoms[i].part == Atom::Part::one_of) return alternatives(atoms, i);
    }
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (atoms[i].part != Atom::Part::keywords) return values(atoms, i);
    }
    unsigned allowed = kinds::all;
    for (const Atom& atom : atoms) allowed &= declared_kinds(atom);
    SchemaScalars scalars(terminals_);
    std::vector<Expression> forms;
    if ((allowed & kinds::null) != 0) forms.push_back(terminals_.word("null"));
    if ((allowed & kinds::boolean) != 0) {
      forms.push_back(terminals_.word("true"));
      forms.push_back(terminals_.word("false"));
    }
    if ((allowed & kinds::number) != 0) forms.push_back(scalars.number(atoms, (allowed & kinds::fraction) == 0));
    if ((allowed & kinds::string) != 0) forms.push_back(scalars.string(atoms));
    if ((allowed & kinds::array) != 0) forms.push_back(array(atoms));
    if ((allowed & kinds::object) != 0) forms.push_back(object(atoms));
    return expressions_.either(std::move(forms));
  }

  /// The atoms with those of a schema in place of one.
  Atoms replaced(const Atoms& atoms, std::size_t at, const JsonText& schema, const std::string& path) {
    Atoms made(atoms.begin(), atoms.begin() + static_cast<std::ptrdiff_t>(at));
    for (Atom& atom : atoms_.expanded(schema, path)) SchemaAtoms::add(made, std::move(atom));
    for (std::size_t i = at + 1; i < atoms.size(); ++i) SchemaAtoms::add(made, atoms[i]);
    return made;
  }

  Expression alternatives(const Atoms& atoms, std::size_t at) {
    const Atom group = atoms[at];
    const bool one = group.part == Atom::Part::one_of;
    const std::string path = child_path(group.path, one ? "oneOf" : "anyOf");
    const JsonText& branches = *group.node->find(one ? "oneOf" : "anyOf");
    std::vector<Expression> forms;
    std::vector<std::size_t> possible;
    for (std::size_t i = 0; i < branches.items.size(); ++i) {
      const std::string place = child_path(path, std::to_string(i));
      forms.push_back(compile(replaced(atoms, at, branches.items[i], place)));
      if (forms.back() != nothing) possible.push_back(i);
    }
    if (one) {
      std::vector<Features> features;
      for (const std::size_t i : possible) {
        features.push_back(features_of(replaced(atoms, at, branches.items[i], child_path(path, std::to_string(i))), 0));
      }
      for (std::size_t a = 0; a < features.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          expressions_.check_time();
          if (!excludes(features[a], features[b])) {
            fail_schema(path,
                        text("'oneOf' is not supported where values may fit both ", possible[b], " and ", possible[a]),
                        "grammar.unsupported");
          }
        }
      }
    }
    return expressions_.either(std::move(forms));
  }

  /// Properties by which alternatives exclude each other.
  struct Features {
    unsigned kinds = kinds::all;
    std::optional<std::set<std::string>> values;             // of the whole value
    std::map<std::string, std::set<std::string>> constants;  // of required members
  };

  static bool disjoint(const std::set<std::string>& a, const std::set<std::string>& b) {
    return std::none_of(a.begin(), a.end(), [&](const std::string& value) { return b.contains(value); });
  }

  static bool excludes(const Features& a, const Features& b) {
    const unsigned common = a.kinds & b.kinds;
    if (common == 0) return true;
    if (a.values && b.values && disjoint(*a.values, *b.values)) return true;
    if (common != kinds::object) return false;
    return std::any_of(a.constants.begin(), a.constants.end(), [&](const auto& constant) {
      const auto other = b.constants.find(constant.first);
      return other != b.constants.end() && disjoint(constant.second, other->second);
    });
  }

  static std::optional<std::set<std::string>> values_of(const Atom& atom) {
    if (atom.part == Atom::Part::constant) return std::set{JsonTerminals::compact(*atom.node->find("const"))};
    if (atom.part != Atom::Part::enumeration) return std::nullopt;
    std::set<std::string> values;
    for (const JsonText& value : atom.node->find("enum")->items) values.insert(JsonTerminals::compact(value));
    return values;
  }

  Features features_of(const Atoms& atoms, int depth) {
    expressions_.check_time();
    Features found;
    std::set<std::string> required;
    for (const Atom& atom : atoms) {
      if (const auto values = values_of(atom)) {
        unsigned all = 0;
        if (atom.part == Atom::Part::constant) all = kind_of(*atom.node->find("const"));
        if (atom.part == Atom::Part::enumeration) {
          for (const JsonText& value : atom.node->find("enum")->items) all |= kind_of(value);
        }
        found.kinds &= all;
        found.values = values;
      } else if (atom.part == Atom::Part::any_of || atom.part == Atom::Part::one_of) {
        found.kinds &= kinds_of_branches(atom, depth);
      } else if (atom.part == Atom::Part::never) {
        found.kinds = 0;
      } else {
        found.kinds &= declared_kinds(atom);
        if (const JsonText* names = atom.node->find("required")) {
          for (const JsonText& name : names->items) required.insert(name.text);
        }
      }
    }
    for (const Atom& atom : atoms) {
      const JsonText* properties = atom.part == Atom::Part::keywords ? atom.node->find("properties") : nullptr;
      if (properties == nullptr || depth > 0) continue;
      for (std::size_t i = 0; i < properties->names.size(); ++i) {
        if (!required.contains(properties->names[i])) continue;
        const std::string path = child_path(child_path(atom.path, "properties"), properties->names[i]);
        const Features inner = features_of(atoms_.expanded(properties->items[i], path), depth + 1);
        if (inner.values) found.constants.emplace(properties->names[i], *inner.values);
      }
    }
    return found;
  }

  unsigned kinds_of_branches(const Atom& atom, int depth) {
    if (depth >= 4) return kinds::all;
    const std::string word = atom.part == Atom::Part::one_of ? "oneOf" : "anyOf";
    unsigned all = 0;
    for (const JsonText& branch : atom.node->find(word)->items) {
      all |= features_of(atoms_.expanded(branch, child_path(atom.path, word)), depth + 1).kinds;
    }
    return all;
  }

  /// The values of enum or const that fit all other atoms.
  Expression values(const Atoms& atoms, std::size_t at) {
    const bool constant = atoms[at].part == Atom::Part::constant;
    const JsonText& listed = *atoms[at].node->find(constant ? "const" : "enum");
    std::vector<const JsonText*> candidates;
    if (constant) candidates.push_back(&listed);
    if (!constant) {
      for (const JsonText& value : listed.items) candidates.push_back(&value);
    }
    Atoms others = atoms;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
    if (!others.empty()) {
      const Expression rest = compile(others);
      Automaton automaton(expressions_);
      std::erase_if(candidates, [&](const JsonText* value) {
        Expression state = rest;
        for (const char byte : JsonTerminals::compact(*value)) {
          state = automaton.step(state, static_cast<unsigned char>(byte));
          if (state == nothing) return true;
        }
        return !expressions_.nullable(state);
      });
    }
    return terminals_.one_of(candidates);
  }

  Expression array(const Atoms& atoms);
  Expression object(const Atoms& atoms);

  friend class SchemaObject;

  JsonTerminals& terminals_;
  Expressions& expressions_;
  const GrammarLimits& limits_;
  const JsonText& root_;
  SchemaAtoms atoms_;
  std::map<std::vector<std::pair<const JsonText*, Atom::Part>>, Entry> entries_;
  int depth_ = 0;
};

inline Expression SchemaCompiler::array(const Atoms& atoms) {
  const Counts counts(atoms, "minItems", "maxItems", limits_);
  if (counts.least > counts.most) return nothing;
  struct Source {
    const JsonText* first = nullptr;  // schemas by position
    const JsonText* rest = nullptr;
    std::string first_path, rest_path;
  };
  std::vector<Source> sources;
  std::size_t positions = 0;
  for (const Atom& atom : atoms) {
    for (const char* word : {"uniqueItems", "contains", "unevaluatedItems"}) {
      const JsonText* value = atom.node->find(word);
      if (value == nullptr) continue;
      const bool off = value->is(JsonText::Type::boolean) && !value->truth;
      if (std::string_view(word) == "uniqueItems"
              ? off
              : std::string_view(word) == "unevaluatedItems" && is_trivial(*value)) {
        continue;
      }
      if (counts.most <= 1 && std::string_view(word) == "uniqueItems") continue;
      fail_keyword(atom.path, word);
    }
    Source source;
    source.first = atom.node->find("prefixItems");
    source.first_path = child_path(atom.path, "prefixItems");
    source.rest = atom.node->find("items");
    source.rest_path = child_path(atom.path, "items");
    if (source.rest != nullptr && source.rest->is(JsonText::Type::array)) {  // draft 7
      source.first = std::exchange(source.rest, atom.node->find("additionalItems"));
      source.first_path = std::exchange(source.rest_path, child_path(atom.path, "additionalItems"));
    }
    if (source.first != nullptr) {
      if (!source.first->is(JsonText::Type::array)) fail_schema(source.first_path, "expected a list of schemas");
      positions = std::max(positions, source.first->items.size());
    }
    sources.push_back(std::move(source));
  }
  const auto item = [&](std::size_t position) {
    Atoms all;
    for (const Source& source : sources) {
      if (source.first != nullptr && position < source.first->items.size()) {
        for (Atom& atom :
             atoms_.expanded(source.first->items[position], child_path(source.first_path, std::to_string(position)))) {
          SchemaAtoms::add(all, std::move(atom));
        }
      } else if (source.rest != nullptr) {
        for (Atom& atom : atoms_.expanded(*source.rest, source.rest_path)) SchemaAtoms::add(all, std::move(atom));
      }
    }
    return compile(all);
  };
  const Expression close = terminals_.close(']'), comma = terminals_.comma();
  const auto rest_of = [](std::uint32_t count, std::size_t taken) {
    return count == unlimited ? unlimited : count > taken ? static_cast<std::uint32_t>(count - taken) : 0;
  };
  positions = std::min<std::size_t>(positions, counts.most);
  // Behind `positions` items.
  const bool more = counts.most > positions;
  const Expression other = more ? item(positions) : nothing;
  const std::size_t before = std::max<std::size_t>(positions, 1);  // items that the loop below writes
  Expression tail =
      expressions_.sequence(expressions_.repeat(expressions_.sequence(comma, other), rest_of(counts.least, before),
                                                rest_of(counts.most, before)),
                            close);
  if (counts.most == 0) tail = nothing;
  for (std::size_t i = before; i-- > 1;) {
    const Expression longer = expressions_.sequence({comma, item(i), tail});
    tail = i >= counts.least ? expressions_.either({close, longer}) : longer;
  }
  if (tail != nothing) tail = expressions_.sequence(positions == 0 ? other : item(0), tail);
  if (counts.least == 0) tail = expressions_.either({tail, terminals_.word("]")});
  return expressions_.sequence(terminals_.open('['), tail);
}

}}}

#include "slm/grammar/schema_object.hpp"
