// Any bytes as a chat template: an Error, or a text whose spans cover it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzzer.hpp"
#include "message.hpp"
#include "slm/text/jinja/template.hpp"
#include "slm/text/utf8.hpp"

SLM_FUZZER(data, size) {
  try {
    slm::jinja::Limits limits;
    limits.steps = 20'000;  // so that many inputs are tried
    limits.steps_per_byte = 1;
    limits.text = 1 << 20;
    limits.memory = 8 << 20;
    const slm::jinja::Template compiled({reinterpret_cast<const char*>(data), size}, "fuzz", limits);
    const auto rendered = compiled.render(
        R"({"messages": [{"role": "system", "content": "Be \u00e9 <s>."}, {"role": "user", "content": " a  b\n"},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"items": [1, true, null]}}}],
            "x": 3, "xs": [1, 2, "a"], "s": "text with <tags>", "d": {"a": 1, "b": [2]}, "bos_token": "<s>"})",
        slm::jinja::Date{2025, 3, 9, 14, 5, 7});
    if (!slm::utf8::is_valid(rendered.text)) std::abort();
    std::size_t covered = 0;
    for (const auto& span : rendered.spans) {
      if (span.end <= covered) std::abort();
      covered = span.end;
    }
    if (covered != rendered.text.size()) std::abort();
  } catch (const slm::TemplateError& error) {
    check_message(error);
    if (error.line() < 1 || error.column() < 1) std::abort();
  } catch (const slm::Error& error) {
    check_message(error);
  }
  return 0;
}
