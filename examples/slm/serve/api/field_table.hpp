// The fields of requests: one table of names, routes, types, ranges, neutral values and meanings. Requests are checked
// against it, and docs/reference/request-fields.md lists it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.hpp"
#include "http/exchange.hpp"

namespace serve {

/// Routes with a JSON body. A row of the table has a set of routes.
enum FieldRoute : unsigned {
  on_completions = 1,
  on_chat = 2,
  on_embeddings = 4,
  on_tokenize = 8,
  on_detokenize = 16,
  on_load_adapter = 32,
  on_unload_adapter = 64,
  on_messages = 128,   // and its count of tokens
  on_responses = 256,  // the same
  // llama.cpp's: see llama_fields.cpp
  on_completion = 1 << 12,
  on_infill = 1 << 13,
  on_apply_template = 1 << 14,
  on_embedding = 1 << 15,
  on_rerank = 1 << 16,
  on_slots = 1 << 17,
};

enum class FieldUse {
  followed,  // affects the answer
  hint,      // any value is accepted and has no effect
  refused,   // every value except null and neutral ones is refused
};

enum class FieldType { any, boolean, string, integer, number, object, list };

struct FieldRow {
  std::string_view name;
  unsigned routes;  // a set of FieldRoute
  FieldUse use;
  FieldType type;            // for followed fields
  double least, most;        // for followed numbers
  std::string_view neutral;  // a JSON list of values that count as absent
  std::string_view text;     // meaning of a followed field or hint, or the reason of a refusal
};

/// All rows. Each route has at most one row for a name.
std::span<const FieldRow> field_table();
/// The rows with those of llama.cpp's routes.
std::vector<FieldRow> with_llama_rows(std::span<const FieldRow> rows);
/// The row of a field; null: the route does not know the field.
const FieldRow* find_field(std::string_view name, FieldRoute route);
/// The table in Markdown: docs/reference/request-fields.md.
std::string field_listing();

/// Checks all fields of a body and removes those that count as absent: null and neutral values. Returns the names that
/// the route does not know, in a safe form. Throws Refusal; with `strict` also for the first such name.
std::vector<std::string> check_fields(slm::Json& body, FieldRoute route, bool strict);

/// The header that lists ignored fields; empty if there are none.
HttpHeaders ignored_header(const std::vector<std::string>& names);

}  // namespace serve
