// Checks a request's fields against the table, and prints the table in Markdown.
#include <cmath>
#include <utility>

#include "api/field_table.hpp"

namespace serve {

namespace {

constexpr std::size_t most_named = 32, longest_name = 64;  // limits for ignored fields in the header

constexpr std::pair<FieldRoute, std::string_view> route_names[] = {
    {on_completions, "completions"},
    {on_chat, "chat"},
    {on_embeddings, "embeddings"},
    {on_tokenize, "tokenize"},
    {on_detokenize, "detokenize"},
    {on_load_adapter, "load adapter"},
    {on_unload_adapter, "unload adapter"},
    {on_messages, "messages"},
    {on_responses, "responses"},
    {on_completion, "completion"},
    {on_infill, "infill"},
    {on_apply_template, "apply-template"},
    {on_embedding, "embedding"},
    {on_rerank, "rerank"},
    {on_slots, "slots"},
};

/// The value without null members, which count as absent.
slm::Json without_nulls(const slm::Json& value) {
  if (!value.is_object()) return value;
  slm::Json kept = slm::Json::object();
  for (const auto& [name, member] : value.items()) {
    if (!member.is_null()) kept[name] = member;
  }
  return kept;
}

bool is_neutral(const FieldRow& row, const slm::Json& value) {
  if (value.is_null()) return true;
  if (row.neutral == "[]") return false;
  const slm::Json found = row.use == FieldUse::refused ? without_nulls(value) : value;
  for (const slm::Json& neutral : slm::Json::parse(row.neutral)) {
    if (found == neutral) return true;
  }
  return false;
}

std::string range_of(const FieldRow& row) {
  if (std::isinf(row.least)) return {};
  const auto written = [](double bound) {
    return std::floor(bound) == bound ? std::to_string(static_cast<std::int64_t>(bound)) : slm::Json(bound).dump();
  };
  return slm::text(" of ", written(row.least), " to ", written(row.most));
}

std::string expected_of(const FieldRow& row) {
  switch (row.type) {
    case FieldType::any: break;
    case FieldType::boolean: return "true or false";
    case FieldType::string: return "a string";
    case FieldType::object: return "an object";
    case FieldType::list: return "a list";
    case FieldType::integer: return std::isinf(row.least) ? "an integer of 64 bits" : "an integer" + range_of(row);
    case FieldType::number: return "a number" + range_of(row);
  }
  return {};
}

bool fits(const FieldRow& row, const slm::Json& value) {
  const auto in_range = [&row](double number) { return number >= row.least && number <= row.most; };
  switch (row.type) {
    case FieldType::any: return true;
    case FieldType::boolean: return value.is_boolean();
    case FieldType::string: return value.is_string();
    case FieldType::object: return value.is_object();
    case FieldType::list: return value.is_array();
    case FieldType::number: return value.is_number() && in_range(value.get<double>());
    case FieldType::integer: {
      const auto whole = integer_of(value);
      return whole && in_range(static_cast<double>(*whole));
    }
  }
  return false;
}

/// Keeps letters, digits and "_.-", encodes other bytes as %XX, so that a client's field name cannot end a header.
std::string safe_name(std::string_view name) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  constexpr std::string_view plain = "_.-";
  std::string safe;
  for (const char byte : name.substr(0, longest_name)) {
    const unsigned code = static_cast<unsigned char>(byte);
    const bool letter = (code | 0x20u) >= 'a' && (code | 0x20u) <= 'z';
    if (letter || (code >= '0' && code <= '9') || plain.find(byte) != plain.npos) {
      safe += byte;
    } else {
      safe.append({'%', digits[code >> 4], digits[code & 15u]});
    }
  }
  return safe;
}

std::string routes_of(unsigned routes) {
  std::string names;
  for (const auto& [route, name] : route_names) {
    if ((routes & route) == 0) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

std::string type_of(const FieldRow& row) {
  switch (row.type) {
    case FieldType::any: return "see meaning";
    case FieldType::boolean: return "true or false";
    case FieldType::string: return "string";
    case FieldType::object: return "object";
    case FieldType::list: return "list";
    case FieldType::integer: return "integer" + (std::isinf(row.least) ? " of 64 bits" : range_of(row));
    case FieldType::number: return "number" + range_of(row);
  }
  return {};
}

/// The values of a JSON list, each as code.
std::string neutral_of(const FieldRow& row) {
  std::string values;
  for (const slm::Json& value : slm::Json::parse(row.neutral)) {
    if (!values.empty()) values += ", ";
    values += "`" + value.dump() + "`";
  }
  return values;
}

}  // namespace

const FieldRow* find_field(std::string_view name, FieldRoute route) {
  for (const FieldRow& row : field_table()) {
    if ((row.routes & route) != 0 && row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string> check_fields(slm::Json& body, FieldRoute route, bool strict) {
  std::vector<std::string> ignored;
  for (auto field = body.begin(); field != body.end();) {
    const FieldRow* const row = find_field(field.key(), route);
    if (row == nullptr) {
      if (strict) {
        throw Refusal(400, "serve.unknown-field",
                      slm::text("The field ", slm::quote(field.key()),
                                " is unknown, expected a field in docs/reference/request-fields.md."))
            .of(slm::excerpt(field.key()));
      }
      if (ignored.size() < most_named) ignored.push_back(safe_name(field.key()));
      ++field;
      continue;
    }
    if (row->use != FieldUse::hint && is_neutral(*row, field.value())) {
      field = body.erase(field);
      continue;
    }
    if (row->use == FieldUse::refused) {
      throw unsupported(field.key(), slm::text("`", row->name, "` as ", slm::quote_json(field.value())), row->text);
    }
    if (row->use == FieldUse::followed && !fits(*row, field.value())) {
      throw Fields::bad(field.key(), field.value(), expected_of(*row));
    }
    ++field;
  }
  return ignored;
}

HttpHeaders ignored_header(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return names.empty() ? HttpHeaders{} : HttpHeaders{{"X-Slm-Ignored-Fields", list}};
}

std::string field_listing() {
  std::string followed = "| field | routes | type | neutral values | meaning |\n|---|---|---|---|---|\n";
  std::string hints = "| field | routes | reason |\n|---|---|---|\n";
  std::string refused = "| field | routes | neutral values | reason |\n|---|---|---|---|\n";
  for (const FieldRow& row : field_table()) {
    const std::string begin = slm::text("| `", row.name, "` | ", routes_of(row.routes), " | ");
    if (row.use == FieldUse::followed) {
      followed += slm::text(begin, type_of(row), " | ", neutral_of(row), " | ", row.text, " |\n");
    } else if (row.use == FieldUse::hint) {
      hints += slm::text(begin, row.text, " |\n");
    } else {
      refused += slm::text(begin, neutral_of(row), " | ", row.text, " |\n");
    }
  }
  return slm::text("Supported fields:\n\n", followed, "\nFields without effect on the answer:\n\n", hints,
                   "\nThe server rejects these fields unless the value is null or in the third column:\n\n", refused);
}

}  // namespace serve
