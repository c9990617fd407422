// Any bytes as an answer, in the form of the first byte and cut at the place of the second: the parts are those of the
// whole text, and arguments are JSON objects.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fuzzer.hpp"
#include "slm/io/json.hpp"
#include "slm/text/answer_parser.hpp"

namespace {

constexpr std::string_view tools =
    R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"},
  "b": {"type": ["array", "string"]}, "c": {"anyOf": [{"type": "boolean"}]}}}}}, {"function": {"name": "python"}}])";

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

SLM_FUZZER(data, size) {
  if (size < 3) return 0;
  static const std::vector<std::string> names = slm::AnswerFormat::names();
  const slm::AnswerFormat format = slm::AnswerFormat::named(names[data[0] % names.size()]);
  const std::string_view text(reinterpret_cast<const char*>(data + 3), size - 3);
  const slm::AnswerOptions options{
      .tools = tools, .reads_calls = data[2] % 4 != 0, .begins_in_reasoning = data[2] % 3 == 0};
  const slm::ParsedAnswer whole = slm::parse_answer(text, format, options);
  slm::AnswerParser parser(format, options);
  slm::ParsedAnswer joined;
  const std::size_t step = 1 + data[1] % 32;
  for (std::size_t at = 0; at < text.size(); at += step) {
    for (slm::AnswerPart& part : parser.push(text.substr(at, step))) joined.add(std::move(part));
  }
  for (slm::AnswerPart& part : parser.finish()) joined.add(std::move(part));
  require(joined.content == whole.content && joined.reasoning == whole.reasoning);
  require(joined.calls.size() == whole.calls.size());
  for (std::size_t i = 0; i < whole.calls.size(); ++i) {
    require(joined.calls[i].name == whole.calls[i].name && joined.calls[i].arguments == whole.calls[i].arguments);
    slm::parse_json_object(whole.calls[i].arguments, "arguments");
  }
  return 0;
}
