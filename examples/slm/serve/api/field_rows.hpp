// Sets of routes, rows and reasons of the table of fields.
#pragma once

#include <limits>
#include <string_view>

#include "api/field_table.hpp"

namespace serve::rows {

inline constexpr unsigned texts = on_completions | on_chat, prompts = on_chat | on_tokenize;
inline constexpr unsigned turns = on_messages | on_responses, chats = on_chat | turns, answers = on_completions | chats;
inline constexpr unsigned all_texts = answers | on_embeddings;
inline constexpr double any_least = -std::numeric_limits<double>::infinity(), any_most = -any_least;
inline constexpr double most_int = std::numeric_limits<int>::max(), least_int = std::numeric_limits<int>::min();
inline constexpr double most_tokens = 1 << 30;

constexpr FieldRow integer(std::string_view name, unsigned routes, double least, double most, std::string_view text,
                           std::string_view neutral = "[]") {
  return {name, routes, FieldUse::followed, FieldType::integer, least, most, neutral, text};
}
constexpr FieldRow number(std::string_view name, unsigned routes, double least, double most, std::string_view text) {
  return {name, routes, FieldUse::followed, FieldType::number, least, most, "[]", text};
}
constexpr FieldRow followed(std::string_view name, unsigned routes, FieldType type, std::string_view text,
                            std::string_view neutral = "[]") {
  return {name, routes, FieldUse::followed, type, 0, 0, neutral, text};
}
constexpr FieldRow hint(std::string_view name, unsigned routes, std::string_view text) {
  return {name, routes, FieldUse::hint, FieldType::any, 0, 0, "[]", text};
}
constexpr FieldRow refused(std::string_view name, unsigned routes, std::string_view neutral, std::string_view text) {
  return {name, routes, FieldUse::refused, FieldType::any, 0, 0, neutral, text};
}

inline constexpr std::string_view constrains = "`structured_outputs` is the field for a constraint of the answer";
inline constexpr std::string_view samples = "the server has no such sampling method";
inline constexpr std::string_view cuts = "the server does not cut texts";
inline constexpr std::string_view thinks = "`reasoning_budget_tokens` is the field";
inline constexpr std::string_view stores = "the server stores no answers; send the whole conversation as `input`";
inline constexpr std::string_view separates = "`reasoning_format` is the field";
inline constexpr std::string_view sees = "the server takes texts only";
inline constexpr std::string_view adapts = "`model` names the adapter";
inline constexpr std::string_view beams = "the server does not search by beams";
inline constexpr std::string_view embeds = "the server does not prepend an instruction; `input` must contain it";
inline constexpr std::string_view limits = "`max_tokens` limits the answer";
inline constexpr std::string_view templates = "the template of the model writes the prompt";
inline constexpr std::string_view wants_completion = "the field belongs to `/v1/completions`";
inline constexpr std::string_view wants_chat = "the field belongs to `/v1/chat/completions`";
inline constexpr std::string_view books = "for the client's own records";
inline constexpr std::string_view runs = "how another server runs a request; the answer is the same";

}  // namespace serve::rows
