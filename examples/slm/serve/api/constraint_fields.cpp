#include "api/constraint_fields.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/auto_calls.hpp"
#include "api/json_source.hpp"
#include "slm/chat/answer_grammar.hpp"

namespace serve {

namespace {

enum class GrammarKind : char { schema = 's', regex = 'r', choice = 'c', gbnf = 'g' };

/// A grammar as a field describes it.
struct AskedGrammar {
  std::string field;
  GrammarKind kind = GrammarKind::schema;
  std::string source;  // a schema, a pattern or a grammar, or the texts as a JSON list
};

constexpr std::string_view any_object = R"({"type": "object"})";

/// A schema: an object, or a string with its JSON text.
std::string schema_text(const std::string& field, const slm::Json& schema, std::string written) {
  if (schema.is_string()) return schema.get<std::string>();
  if (!schema.is_object()) throw Fields::bad(field, schema, "a JSON schema");
  return written;
}

class ConstraintReader {
 public:
  explicit ConstraintReader(const Fields& fields) : fields_(fields) {}

  /// Null: the answer is not constrained.
  std::optional<AskedGrammar> read() {
    read_response_format();
    read_structured_outputs();
    add_schema("guided_json", "guided_json", fields_);
    add_text("guided_regex", "guided_regex", GrammarKind::regex, fields_);
    add_choice("guided_choice", "guided_choice", fields_);
    add_text("guided_grammar", "guided_grammar", GrammarKind::gbnf, fields_);
    add_schema("json_schema", "json_schema", fields_);
    add_text("grammar", "grammar", GrammarKind::gbnf, fields_);
    return found_;
  }

  const slm::JsonOptions& options() const { return options_; }

 private:
  void add(std::string field, GrammarKind kind, std::string source) {
    if (found_) throw bad_field(field, slm::text("excludes `", found_->field, "`: one field constrains the answer"));
    found_ = AskedGrammar{std::move(field), kind, std::move(source)};
  }

  /// field: the name in errors. name: the member of `of`.
  void add_schema(const char* field, const char* name, const Fields& of) {
    if (const slm::Json* schema = of.find(name)) {
      add(field, GrammarKind::schema, schema_text(field, *schema, of.text(name)));
    }
  }

  void add_text(const char* field, const char* name, GrammarKind kind, const Fields& of) {
    const slm::Json* value = of.find(name);
    if (value == nullptr) return;
    if (!value->is_string()) throw Fields::bad(field, *value, slm::text("a string as `", name, "`"));
    add(field, kind, value->get<std::string>());
  }

  void add_choice(const char* field, const char* name, const Fields& of) {
    const slm::Json* list = of.find(name);
    if (list == nullptr) return;
    if (!list->is_array() ||
        !std::all_of(list->begin(), list->end(), [](const auto& one) { return one.is_string(); })) {
      throw Fields::bad(field, *list, "a list of strings");
    }
    add(field, GrammarKind::choice, of.text(name));
  }

  void read_response_format() {
    constexpr const char* field = "response_format";
    const slm::Json* format = fields_.find(field);
    if (format == nullptr) return;
    const std::string written = fields_.text(field);
    const Fields members(*format, written);
    const slm::Json* type = members.find("type");
    const bool is_schema = type != nullptr && *type == "json_schema";
    if (type != nullptr && *type == "text") return;
    if (!is_schema && (type == nullptr || *type != "json_object")) {
      throw Fields::bad(field, *format, "an object with the `type` text, json_object or json_schema");
    }
    const slm::Json* wrapper = is_schema ? members.find("json_schema") : nullptr;
    if (wrapper == nullptr) {  // llama.cpp's form
      if (members.has("schema")) return add_schema(field, "schema", members);
      if (is_schema) throw Fields::bad(field, *format, "an object as `json_schema`");
      return add(field, GrammarKind::schema, std::string{any_object});
    }
    if (!wrapper->is_object()) throw Fields::bad(field, *format, "an object as `json_schema`");
    const std::string inner = members.text("json_schema");
    const Fields wrapped(*wrapper, inner);
    if (const slm::Json* strict = wrapped.find("strict"); strict != nullptr && !strict->is_boolean()) {
      throw Fields::bad(field, *strict, "true or false as `strict`");
    }
    if (!wrapped.has("schema")) throw Fields::bad(field, *wrapper, "a JSON schema as `schema`");
    add_schema(field, "schema", wrapped);
  }

  void read_structured_outputs() {
    constexpr const char* field = "structured_outputs";
    if (const slm::Json* pattern = fields_.find("guided_whitespace_pattern")) {
      options_.whitespace_pattern = pattern->get<std::string>();
    }
    const slm::Json* object = fields_.find(field);
    if (object == nullptr) return;
    const std::string written = fields_.text(field);
    const Fields members(*object, written);
    constexpr std::array<std::string_view, 7> known{
        "json", "regex", "choice", "grammar", "json_object", "disable_any_whitespace", "whitespace_pattern"};
    bool is_empty = true;
    for (const auto& [name, value] : object->items()) {
      if (value.is_null() || value == false) continue;
      is_empty = false;
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw unsupported(field, slm::text("`", slm::excerpt(name), "` in `", field, "`"));
    }
    add_schema(field, "json", members);
    add_text(field, "regex", GrammarKind::regex, members);
    add_choice(field, "choice", members);
    add_text(field, "grammar", GrammarKind::gbnf, members);
    if (flag(members, "json_object")) add(field, GrammarKind::schema, std::string{any_object});
    options_.compact = flag(members, "disable_any_whitespace");
    if (const slm::Json* pattern = members.find("whitespace_pattern")) {
      if (!pattern->is_string()) throw Fields::bad(field, *pattern, "a string as `whitespace_pattern`");
      options_.whitespace_pattern = pattern->get<std::string>();
    }
    if (!found_ && !is_empty) throw Fields::bad(field, *object, "one of json, regex, choice, grammar and json_object");
  }

  bool flag(const Fields& members, const char* name) const {
    const slm::Json* value = members.find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      throw Fields::bad("structured_outputs", *value, slm::text("true or false as `", name, "`"));
    }
    return value->get<bool>();
  }

  const Fields& fields_;
  std::optional<AskedGrammar> found_;
  slm::JsonOptions options_;
};

slm::Grammar compile(const AskedGrammar& asked, const slm::JsonOptions& options) {
  switch (asked.kind) {
    case GrammarKind::schema: break;
    case GrammarKind::regex: return slm::Grammar::regex(asked.source);
    case GrammarKind::choice:
      return slm::Grammar::choice(slm::Json::parse(asked.source).get<std::vector<std::string>>());
    case GrammarKind::gbnf: return slm::Grammar::gbnf(asked.source);
  }
  return slm::Grammar::json_schema(asked.source, options);
}

/// The key of the cache, and the function that compiles the grammar.
struct KeyedGrammar {
  std::string key, field;
  std::function<slm::Grammar()> compile;
};

std::optional<KeyedGrammar> asked_grammar(const Fields& fields) {
  ConstraintReader reader(fields);
  const std::optional<AskedGrammar> asked = reader.read();
  if (!asked) return std::nullopt;
  const slm::JsonOptions& options = reader.options();
  std::string key{static_cast<char>(asked->kind)};
  if (asked->kind == GrammarKind::schema) {
    key += options.compact ? 'c' : 'w';
    if (options.whitespace_pattern) key += slm::text(options.whitespace_pattern->size(), *options.whitespace_pattern);
  }
  return KeyedGrammar{key + ':' + asked->source, asked->field,
                      [asked = *asked, options] { return compile(asked, options); }};
}

slm::ConstraintRef constraint_of(const KeyedGrammar& grammar, const ServedModel& model,
                                 std::span<const slm::Token> tags) {
  try {
    return model.constraints->get(grammar.key, model.tokenizer, tags, [&grammar](const slm::TokenTrie& tokens) {
      return slm::constrain(grammar.compile(), tokens);
    });
  } catch (const slm::Error& error) {
    throw Refusal(400, error.id(), slm::text("`", grammar.field, "`: ", error.what())).of(grammar.field);
  }
}

/// The tools of a JSON list; named: only this one, unless it is empty.
std::vector<slm::CallSignature> signatures_of(std::string_view list, std::string_view named) {
  std::vector<slm::CallSignature> signatures;
  JsonSource(list).each_item([&](std::string_view tool) {
    const std::string_view function = JsonSource(tool).member("function");
    std::string name = slm::Json::parse(JsonSource(function).member("name")).get<std::string>();
    if (!named.empty() && name != named) return;
    signatures.push_back({std::move(name), std::string(JsonSource(function).member("parameters"))});
  });
  return signatures;
}

/// The answer must be a call, or may be one beside the texts of a grammar.
std::optional<KeyedGrammar> with_calls(std::optional<KeyedGrammar> texts, const ServedModel& model,
                                       const ToolFields& tools) {
  const bool required = tools.choice == ToolChoice::required;
  if (tools.list.empty() || (!required && !texts)) return texts;
  const std::optional<slm::CallForm> form = slm::CallForm::of(model.chat->form, model.chat->answer);
  if (!form && required) {
    throw unsupported("tool_choice", "A required call", "this model does not write the arguments of calls in JSON");
  }
  if (!form) return texts;
  const auto call = [form = *form, list = tools.list, named = tools.named] {
    return form.call(signatures_of(list, named));
  };
  std::string key = slm::text("call ", tools.named, ' ', tools.list);
  if (required) return KeyedGrammar{std::move(key), "tools", call};
  return KeyedGrammar{slm::text(key, " or ", texts->key), texts->field, [compile = texts->compile, call] {
                        const slm::Grammar forms[]{compile(), call()};
                        return slm::Grammar::any_of(forms);
                      }};
}

/// The grammar behind the reasoning of the answer.
KeyedGrammar behind_reasoning(const KeyedGrammar& grammar, const slm::AnswerFormat& format, Reasoning reasoning) {
  return {
      slm::text(reasoning == Reasoning::begun ? "begun " : "possible ", grammar.key), grammar.field,
      [compile = grammar.compile, format, reasoning] { return slm::behind_reasoning(compile(), format, reasoning); }};
}

/// The constraint of a chat whose answer may have calls beside any text; null: the form of the calls is not JSON
/// between tags.
slm::ConstraintRef read_auto_calls(const ServedModel& model, const ToolFields& tools, Reasoning reasoning) {
  const std::optional<slm::CallForm> form = slm::CallForm::of(model.chat->form, model.chat->answer);
  if (!form || form->opening().empty()) return nullptr;
  CallTags tags{.opening = form->opening()};
  if (reasoning != Reasoning::none) {
    tags.begin = model.chat->answer.reasoning_begin();
    tags.end = model.chat->answer.reasoning_end();
    tags.begun = reasoning == Reasoning::begun;
  }
  const std::string key = slm::text("auto ", static_cast<int>(reasoning), ' ', tools.list);
  return model.constraints->get(key, model.tokenizer, model.chat->tags,
                                [&](const slm::TokenTrie& tokens) -> slm::ConstraintRef {
                                  try {
                                    const slm::Grammar call = form->call_behind_opening(signatures_of(tools.list, {}));
                                    return auto_calls(tags, slm::constrain(call, tokens), tokens);
                                  } catch (const slm::Error&) {
                                    return nullptr;  // the grammar exceeds a limit
                                  }
                                });
}

}  // namespace

slm::ConstraintRef read_constraint(const Fields& fields, const ServedModel& model) {
  const auto grammar = asked_grammar(fields);
  return grammar ? constraint_of(*grammar, model, {}) : nullptr;
}

slm::ConstraintRef read_chat_constraint(const Fields& fields, const ServedModel& model, const ToolFields& tools,
                                        Reasoning reasoning) {
  auto grammar = with_calls(asked_grammar(fields), model, tools);
  if (!grammar) {
    return tools.choice == ToolChoice::automatic && !tools.list.empty() ? read_auto_calls(model, tools, reasoning)
                                                                        : nullptr;
  }
  const bool has_tags = reasoning != Reasoning::none || !tools.list.empty();
  if (reasoning != Reasoning::none) {
    grammar = behind_reasoning(*grammar, model.chat->answer, reasoning);
  }
  const std::vector<slm::Token> none;
  return constraint_of(*grammar, model, has_tags ? model.chat->tags : none);
}

}  // namespace serve
