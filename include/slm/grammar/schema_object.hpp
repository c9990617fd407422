// SchemaObject: the objects that a schema allows. Members come in a fixed order, further ones behind them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slm/grammar/schema_compiler.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class SchemaObject {
 public:
  SchemaObject(SchemaCompiler& compiler, const Atoms& atoms)
      : compiler_(compiler),
        terminals_(compiler.terminals_),
        expressions_(compiler.expressions_),
        atoms_(atoms),
        counts_(atoms, "minProperties", "maxProperties", compiler.limits_) {}

  Expression make() {
    check_keywords();
    if (counts_.least > counts_.most) return nothing;
    find_names();
    find_patterns();
    for (const std::string& name : names_) {
      const Expression value = compiler_.compile(value_of(name));
      const bool required = required_.contains(name);
      if (value == nothing && !required) continue;
      members_.push_back({sequence_of(terminals_.string(terminals_.characters().literal(name)), value), required});
      if (value == nothing) return nothing;
    }
    find_further();
    return joined();
  }

 private:
  struct Member {
    Expression expression;
    bool required;
  };

  struct Pattern {
    std::string written;
    Expression content;  // names that match, as the content of a string
    std::string path;
  };

  static constexpr std::size_t most_counted = 100'000;  // members times counts
  static constexpr std::size_t chunk = 16;              // alternatives beside each other

  void check_keywords() const {
    for (const Atom& atom : atoms_) {
      for (const char* word : {"propertyNames", "dependentRequired", "dependentSchemas", "dependencies"}) {
        const JsonText* value = atom.node->find(word);
        if (value != nullptr && !is_trivial(*value)) fail_keyword(atom.path, word);
      }
      const JsonText* rest = atom.node->find("unevaluatedProperties");
      if (rest != nullptr && !is_trivial(*rest)) fail_keyword(atom.path, "unevaluatedProperties");
    }
  }

  static const JsonText* object_of(const Atom& atom, const char* word) {
    const JsonText* value = atom.node->find(word);
    if (value != nullptr && !value->is_object()) fail_schema(child_path(atom.path, word), "expected an object");
    return value;
  }

  void find_names() {
    std::set<std::string> known;
    const auto add = [&](const std::string& name) {
      if (known.insert(name).second) names_.push_back(name);
    };
    for (const Atom& atom : atoms_) {
      if (const JsonText* properties = object_of(atom, "properties")) {
        for (const std::string& name : properties->names) add(name);
      }
    }
    for (const Atom& atom : atoms_) {
      const JsonText* listed = atom.node->find("required");
      if (listed == nullptr) continue;
      const std::string path = child_path(atom.path, "required");
      if (!listed->is(JsonText::Type::array)) fail_schema(path, "expected a list of names");
      for (const JsonText& name : listed->items) {
        if (!name.is(JsonText::Type::string)) fail_schema(path, "expected a list of names");
        required_.insert(name.text);
        add(name.text);
      }
    }
  }

  void find_patterns() {
    for (const Atom& atom : atoms_) {
      const JsonText* listed = object_of(atom, "patternProperties");
      if (listed == nullptr) continue;
      for (const std::string& written : listed->names) {
        const bool known = std::any_of(patterns_.begin(), patterns_.end(),
                                       [&](const Pattern& other) { return other.written == written; });
        if (known) continue;
        const std::string path = child_path(child_path(atom.path, "patternProperties"), written);
        RegexParser parser(expressions_, terminals_.characters(), written, text("json_schema", excerpt(path)));
        patterns_.push_back({written, parser.search(), path});
      }
    }
    if (patterns_.size() < 2) return;
    const Expression named = expressions_.complement(names_expression());
    std::vector<Expression> common;
    for (std::size_t a = 0; a < patterns_.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const Expression both = expressions_.both({patterns_[a].content, patterns_[b].content, named});
        if (Automaton(expressions_).is_alive(both)) {
          fail_schema(patterns_[a].path, "names that match two of 'patternProperties' are not supported",
                      "grammar.unsupported");
        }
      }
    }
  }

  /// All names of members, as contents of strings.
  Expression names_expression() {
    std::vector<Expression> forms;
    std::vector<std::string> plain;
    for (const std::string& name : names_) {
      const std::string quoted = JsonTerminals::quoted(name);
      if (quoted.size() == name.size() + 2) {
        plain.push_back(name);
      } else {
        forms.push_back(terminals_.characters().literal(name));
      }
    }
    if (!plain.empty()) forms.push_back(one_of_texts(expressions_, std::move(plain)));
    return expressions_.either(std::move(forms));
  }

  bool matches(const Pattern& pattern, const std::string& name) {
    const std::string quoted = JsonTerminals::quoted(name);
    Automaton automaton(expressions_);
    Expression state = pattern.content;
    for (std::size_t i = 1; i + 1 < quoted.size() && state != nothing; ++i) {
      state = automaton.step(state, static_cast<unsigned char>(quoted[i]));
    }
    return expressions_.nullable(state);
  }

  void add_schema(Atoms& all, const JsonText& schema, const std::string& path) {
    for (Atom& atom : compiler_.atoms_.expanded(schema, path)) SchemaAtoms::add(all, std::move(atom));
  }

  /// The schemas of a name: its own ones, those of patterns, or of additional members.
  Atoms value_of(const std::string& name) {
    Atoms all;
    for (const Atom& atom : atoms_) {
      bool found = false;
      if (const JsonText* properties = atom.node->find("properties")) {
        if (const JsonText* own = properties->find(name)) {
          add_schema(all, *own, child_path(child_path(atom.path, "properties"), name));
          found = true;
        }
      }
      if (const JsonText* listed = atom.node->find("patternProperties")) {
        for (const Pattern& pattern : patterns_) {
          const JsonText* schema = listed->find(pattern.written);
          if (schema == nullptr || !matches(pattern, name)) continue;
          add_schema(all, *schema, child_path(child_path(atom.path, "patternProperties"), pattern.written));
          found = true;
        }
      }
      if (!found) add_additional(all, atom);
    }
    return all;
  }

  void add_additional(Atoms& all, const Atom& atom) {
    if (const JsonText* schema = atom.node->find("additionalProperties")) {
      add_schema(all, *schema, child_path(atom.path, "additionalProperties"));
    }
  }

  /// Members whose names are not listed.
  void find_further() {
    const Expression names = names_expression();
    std::vector<Expression> forms;
    std::vector<Expression> taken{names};
    for (const Pattern& pattern : patterns_) {
      Atoms all;
      for (const Atom& atom : atoms_) {
        const JsonText* listed = atom.node->find("patternProperties");
        const JsonText* schema = listed == nullptr ? nullptr : listed->find(pattern.written);
        if (schema != nullptr) {
          add_schema(all, *schema, child_path(child_path(atom.path, "patternProperties"), pattern.written));
        } else {
          add_additional(all, atom);
        }
      }
      const Expression content =
          names == nothing ? pattern.content : expressions_.both({pattern.content, expressions_.complement(names)});
      forms.push_back(sequence_of(terminals_.string(content), compiler_.compile(all)));
      taken.push_back(pattern.content);
    }
    Atoms all;
    for (const Atom& atom : atoms_) add_additional(all, atom);
    const Expression refused = expressions_.either(std::move(taken));
    const Expression any = terminals_.characters().any_text();
    const Expression key = refused == nothing
                               ? terminals_.any_string()
                               : terminals_.string(expressions_.both({any, expressions_.complement(refused)}));
    forms.push_back(sequence_of(key, compiler_.compile(all)));
    further_ = expressions_.either(std::move(forms));
  }

  Expression sequence_of(Expression key, Expression value) {
    return expressions_.sequence({key, terminals_.colon(), value});
  }

  /// Members count where their number matters.
  Expression joined() {
    std::size_t required = 0;
    for (const Member& member : members_) required += member.required ? 1 : 0;
    std::uint32_t least = counts_.least <= required ? 0 : counts_.least;
    const std::uint32_t most = counts_.most;
    const bool not_empty = least == 1 && most == unlimited;
    if (not_empty) least = 0;
    // Counts above `cap` are equal.
    const std::size_t cap = most != unlimited ? std::min<std::size_t>(most, members_.size())
                                              : std::min<std::size_t>(least, members_.size());
    if ((members_.size() + 1) * (cap + 1) > most_counted) fail_limit("minProperties or maxProperties");
    const Expression close = terminals_.close('}'), comma = terminals_.comma();
    const auto rest_of = [](std::uint32_t count, std::size_t taken) {
      return count == unlimited ? unlimited : count > taken ? static_cast<std::uint32_t>(count - taken) : 0;
    };
    // next[c]: a member must follow c members. tail[c]: members may follow.
    std::vector<Expression> next(cap + 1), tail(cap + 1);
    const auto set_tail = [&](bool complete) {
      for (std::size_t c = 0; c <= cap; ++c) {
        const bool may_close = complete && c >= std::min<std::size_t>(least, cap) && (c >= least || most == unlimited);
        tail[c] = expressions_.either(
            {may_close ? close : nothing, c >= most ? nothing : expressions_.sequence(comma, next[c])});
      }
    };
    for (std::size_t c = 0; c <= cap; ++c) {
      if (c >= most || further_ == nothing) continue;
      const Expression more =
          expressions_.repeat(expressions_.sequence(comma, further_), rest_of(least, c + 1), rest_of(most, c + 1));
      next[c] = expressions_.sequence({further_, more, close});
    }
    bool complete = true;
    for (std::size_t i = members_.size(); i-- > 0;) {
      set_tail(complete);
      const Member& member = members_[i];
      for (std::size_t c = 0; c <= cap; ++c) {
        const std::size_t after = std::min(c + 1, cap);
        const Expression own = c >= most ? nothing : expressions_.sequence(member.expression, tail[after]);
        Expression form = member.required ? own : expressions_.either({own, next[c]});
        if (i % chunk == 0 && members_.size() > chunk) form = as_rule(form);
        next[c] = form;
      }
      complete = complete && !member.required;
    }
    const bool may_be_empty = complete && least == 0 && !not_empty;
    return expressions_.sequence(
        terminals_.open('{'),
        expressions_.either({most == 0 ? nothing : next[0], may_be_empty ? terminals_.word("}") : nothing}));
  }

  /// A rule keeps long lists of alternatives apart.
  Expression as_rule(Expression e) {
    if (e == nothing) return e;
    const std::uint32_t rule = expressions_.add_rule("members");
    expressions_.rules()[rule] = e;
    return expressions_.rule(rule);
  }

  SchemaCompiler& compiler_;
  JsonTerminals& terminals_;
  Expressions& expressions_;
  const Atoms& atoms_;
  const Counts counts_;
  std::vector<std::string> names_;
  std::set<std::string> required_;
  std::vector<Pattern> patterns_;
  std::vector<Member> members_;
  Expression further_ = nothing;
};

inline Expression SchemaCompiler::object(const Atoms& atoms) { return SchemaObject(*this, atoms).make(); }

}}}
