#include "api/call_grammar.hpp"

#include <algorithm>
#include <cstddef>

#include "api/json_source.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"

namespace serve {

namespace {

/// The names in the call that ChatFeatures::call_text shows.
constexpr std::string_view shown_name = "fq7z", shown_key = "\"kq7z\"", shown_value = "\"vq7z\"";

/// Where the first of the tags begins.
std::size_t first_tag(std::string_view text, const std::vector<std::string>& tags) {
  std::size_t first = text.npos;
  for (const std::string& tag : tags) first = std::min(first, text.find(tag));
  return first;
}

/// Behind the last of the tags; 0: there is none.
std::size_t last_tag(std::string_view text, const std::vector<std::string>& tags) {
  std::size_t last = 0;
  for (const std::string& tag : tags) {
    if (const std::size_t at = text.rfind(tag); at != text.npos) last = std::max(last, at + tag.size());
  }
  return last;
}

/// Behind the bracket that closes the brackets that `before` leaves open; 0: it leaves none, or they stay open.
std::size_t closing(std::string_view before, std::string_view text) {
  std::size_t depth = 0, at = 0;
  bool quoted = false;
  const auto take = [&](char byte) {
    if (byte == '"') quoted = !quoted;
    if (quoted) return;
    if (byte == '{' || byte == '[') ++depth;
    if ((byte == '}' || byte == ']') && depth > 0) --depth;
  };
  for (const char byte : before) take(byte);
  if (quoted) return 0;
  while (depth > 0 && at < text.size()) take(text[at++]);
  return depth == 0 ? at : 0;
}

slm::Grammar literal(std::string text) {
  const std::vector<std::string> one{std::move(text)};
  return slm::Grammar::choice(one);
}

/// The schema of a tool's arguments, which are an object.
std::string schema_of(const slm::Json& function, std::string_view written) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null()) {
    return R"({"type": "object", "additionalProperties": false})";
  }
  const std::string_view schema = JsonSource(written).member("parameters");
  if (parameters->contains("type")) return std::string{schema};
  return slm::text(R"({"type": "object")", parameters->empty() ? "" : ", ", schema.substr(1));
}

/// Calls use(name, schema of the arguments) for each of the tools.
template <class Use>
void each_function(std::string_view tools, Use use) {
  JsonSource(tools).each_item([&](std::string_view tool) {
    const std::string_view written = JsonSource(tool).member("function");
    const slm::Json function = slm::Json::parse(written);
    use(function.at("name").get<std::string>(), schema_of(function, written));
  });
}

/// The tag at the beginning of a call, if calls are `<tag> NAME ARGUMENTS <tag>`.
std::string opening_of(std::string_view head, std::string_view tail, const std::vector<std::string>& tags) {
  std::string opening;
  for (const std::string& tag : tags) {
    if (head.starts_with(tag) && tag.size() > opening.size()) opening = tag;
  }
  const std::string_view behind = head.substr(opening.size());
  const bool is_list = behind.find('[') != behind.npos || first_tag(behind, tags) != behind.npos;
  const std::size_t close = first_tag(tail, tags);
  const bool closes = std::any_of(tags.begin(), tags.end(), [&](const std::string& tag) {
    return close != tail.npos && tail.substr(close) == tag;
  });
  return opening.starts_with('<') && !is_list && closes ? opening : std::string{};
}

}  // namespace

std::optional<CallForm> CallForm::of(const cli::ChatFormat& format) {
  const slm::ChatFeatures& features = format.form.features();
  std::string_view text = features.call_text;
  if (text.starts_with(features.generation_prompt)) text.remove_prefix(features.generation_prompt.size());
  const std::vector<std::string> tags = format.answer.tags();
  const std::size_t name = text.find(shown_name), key = text.find(shown_key), value = text.find(shown_value);
  if (name == text.npos || key == text.npos || value == text.npos || !(name < key && key < value)) return std::nullopt;
  const std::size_t begin = text.rfind('{', key), end = text.find('}', value);
  if (begin == text.npos || end == text.npos || begin < name) return std::nullopt;
  CallForm form;
  form.head_ = text.substr(0, name);
  if (const std::size_t tag = first_tag(form.head_, tags); tag != form.head_.npos) form.head_.erase(0, tag);
  form.middle_ = text.substr(name + shown_name.size(), begin - name - shown_name.size());
  const std::string_view behind = text.substr(end + 1);
  const std::size_t tagged = last_tag(behind, tags), closed = closing(form.head_ + form.middle_, behind);
  form.tail_ = behind.substr(0, std::max(tagged, closed));
  form.opening_ = opening_of(form.head_, form.tail_, tags);
  return form;
}

slm::Grammar CallForm::call_of(const std::string& name, std::string_view schema, std::size_t skipped) const {
  const slm::Grammar parts[]{literal(before_arguments(name).substr(skipped)), slm::Grammar::json_schema(schema),
                             literal(tail_)};
  return slm::Grammar::sequence(std::span(parts, tail_.empty() ? 2 : 3));
}

slm::Grammar CallForm::call(std::string_view tools, std::string_view named) const {
  std::vector<slm::Grammar> calls;
  each_function(tools, [&](const std::string& name, const std::string& schema) {
    if (named.empty() || name == named) calls.push_back(call_of(name, schema, 0));
  });
  return slm::Grammar::any_of(calls);
}

slm::Grammar CallForm::call_behind_opening(std::string_view tools) const {
  std::vector<slm::Grammar> calls;
  each_function(tools, [&](const std::string& name, const std::string& schema) {
    try {
      calls.push_back(call_of(name, schema, opening_.size()));
    } catch (const slm::Error&) {
      calls.push_back(call_of(name, R"({"type": "object"})", opening_.size()));
    }
  });
  return slm::Grammar::any_of(calls);
}

}  // namespace serve
