// A template in Jinja, as Hugging Face's chat templates are written.
#pragma once

#include "slm/core/implementation_order.inc"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/text/jinja/dates.hpp"
#include "slm/text/jinja/limits.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

struct Program;
class Text;
class Value;

/// A text, and the spans that the template wrote. Control tokens are allowed only in these.
struct Rendered {
  struct Span {
    std::size_t end;  // in bytes; it begins where the one before ends
    bool written;     // by the template; else it comes from the variables
  };

  std::string text;
  std::vector<Span> spans;
};

/// A template that is compiled. Cheap to copy; all functions are const and may be called from several threads. It does
/// no input and output, and ends within its limits whatever its source and its variables are.
class Template {
 public:
  /// Throws TemplateError ("chat.template-syntax", "chat.template-limit"). name: what errors call the template.
  explicit Template(std::string_view source, std::string name = "chat template", const Limits& limits = {});

  /// Throws TemplateError, and Error ("json.…"). variables: a JSON object; no date: the time of the call.
  Rendered render(std::string_view variables, const std::optional<Date>& date = {}) const;

  /// The same for variables that are a dict already.
  Text render_value(const Value& variables, const std::optional<Date>& date = {}) const;

  const std::string& source() const;

 private:
  std::shared_ptr<const Program> program_;
  std::string name_;
  Limits limits_;
};

}}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_jinja_template_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/jinja/template_functions.hpp"
#endif
