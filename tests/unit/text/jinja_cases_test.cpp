// The language beside jinja2: small templates, and published ones where they are present.
#include <catch2/catch.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "slm/core/error.hpp"
#include "slm/text/jinja/template.hpp"
#include "support/paths.hpp"
#include "support/templates.hpp"

using namespace slm;
using testing::OrderedJson;
using testing::template_cases;

namespace {

/// The result of a case: its text, or "kind: reason (line)".
std::string result_of(const std::string& source, const std::string& variables, const std::string& date) {
  try {
    const jinja::Template compiled(source);
    return compiled.render(variables, jinja::Date::parse(date)).text;
  } catch (const TemplateError& error) {
    constexpr const char* kinds[]{"syntax", "runtime", "raised", "limit"};
    return std::string("error ") + kinds[static_cast<int>(error.kind())] + ": " + error.reason() + " (line " +
           std::to_string(error.line()) + ")";
  }
}

}  // namespace

TEST_CASE("small templates give what jinja2 gives", "[jinja]") {
  for (const OrderedJson& example : template_cases("micro.json")) {
    const std::string name = example["name"];
    if (testing::not_offered(name)) continue;
    CAPTURE(name, example["template"].get<std::string>());
    const std::string found =
        result_of(example["template"], example["context"].dump(), example.value("date", "2025-03-09T14:05:07"));
    if (!example.contains("error")) {
      CHECK(found == example["expected"].get<std::string>());
      continue;
    }
    CHECK_THAT(found, Catch::Matchers::StartsWith("error "));
    if (example["error_kind"] == "raised") {
      CHECK_THAT(found, Catch::Matchers::StartsWith("error raised: " + example["error_text"].get<std::string>()));
    }
    if (example["error_kind"] == "syntax") CHECK_THAT(found, Catch::Matchers::StartsWith("error syntax"));
    if (name.starts_with("line-") && name != "line-unclosed-if") {  // its error has the line of the block's beginning
      CHECK_THAT(found, Catch::Matchers::EndsWith("(line " + std::to_string(example["error_line"].get<int>()) + ")"));
    }
  }
}
