// Templates that nest too deep, and large conversations; jinja_hostile_test.cpp has those that take much time.
#include <pthread.h>
#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/jinja/template.hpp"
#include "support/errors.hpp"

using namespace slm;
using testing::error_id;

namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string rendered(const std::string& source, const std::string& variables = "{}") {
  return jinja::Template(source).render(variables).text;
}

/// The id of what rendering throws, or its text.
std::string outcome(const std::string& source, const std::string& variables = "{}") {
  try {
    return rendered(source, variables);
  } catch (const Error& error) {
    return error.id();
  }
}

/// Runs an action on a thread with so much stack.
void on_stack(std::size_t bytes, std::function<void()> action) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &action) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

const std::string limit = "chat.template-limit";

/// Sanitizers make frames so large that the stack's limit comes first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool large_frames = true;
#else
constexpr bool large_frames = false;
#endif

}  // namespace

TEST_CASE("templates nest as deep as their limits on a small stack", "[jinja]") {
  const auto nested = [](int depth) {
    return std::vector<std::string>{
        "{{ " + repeated("(", depth) + "1" + repeated(")", depth) + " }}",
        "{{ " + repeated("[", depth) + "1" + repeated("]", depth) + "|string|length > 0 }}",
        "{{ " + repeated("{'a': ", depth) + "1" + repeated("}", depth) + "|tojson|length > 0 }}",
        "{{ " + repeated("not ", depth) + "1 }}",
        "{{ " + repeated("-", depth) + "1 }}",
        "{{ 'a'" + repeated("|upper", depth) + " }}",
        "{{ x" + repeated(".y", depth) + " }}",
        "{{ f" + repeated("()", depth) + " }}",
        "{{ 1" + repeated(" if 1 else 2", depth) + " }}",
        "{{ 2" + repeated("**1", depth) + " }}",
        "{{ a[" + repeated("a[", depth) + "1" + repeated("]", depth) + "] }}",
        repeated("{% if 1 %}", depth) + "x" + repeated("{% endif %}", depth),
        repeated("{% for i in [1] %}", depth) + "x" + repeated("{% endfor %}", depth),
        repeated("{% macro m() %}", depth) + "x" + repeated("{% endmacro %}", depth),
        repeated("{% set a %}", depth) + "x" + repeated("{% endset %}", depth),
        repeated("{% filter upper %}", depth) + "x" + repeated("{% endfilter %}", depth),
        repeated("{% for (", depth),
    };
  };
  for (const std::size_t stack : {std::size_t{1} << 20, std::size_t{8} << 20}) {
    std::vector<std::string> found;
    on_stack(stack, [&] {
      for (const int depth : {60, 190, 250, 20'000}) {
        for (const std::string& source : nested(depth)) found.push_back(outcome(source));
      }
      for (const int depth : {150, 250}) {
        const std::string calls = std::to_string(depth);
        found.push_back(outcome("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(" +
                                calls + ")|length }}"));
        found.push_back(
            outcome("{% macro f(n) %}{% for i in [1] %}{% if n %}{{ [f(n - 1) ~ 'x']|join|upper }}"
                    "{% endif %}{% endfor %}{% endmacro %}{{ f(" +
                    calls + ")|length }}"));
        found.push_back(
            outcome("{% macro f(n) %}{% if n %}{% call f(n - 1) %}{% endcall %}{% endif %}{% endmacro %}"
                    "{{ f(" +
                    calls + ")|length }}"));
      }
    });
    CHECK(found[0] == "1");
    CHECK((found[4 * 17] == "343" || (large_frames && found[4 * 17] == limit)));
    CHECK(found[4 * 17 + 3] == limit);
  }
}

TEST_CASE("values cannot nest without end", "[jinja]") {
  const std::string grow = "{% set ns = namespace(x=1) %}{% for i in range(5000) %}{% set ns.x = ";
  CHECK(outcome(grow + "[ns.x] %}{% endfor %}") == limit);
  CHECK(outcome(grow + "{'a': ns.x} %}{% endfor %}") == limit);
  CHECK(outcome(grow + "(ns.x,) %}{% endfor %}") == limit);
  CHECK(outcome(grow + "[ns.x]|map('string') %}{% endfor %}{{ ns.x|list|length }}") == "1");
  CHECK(outcome(grow + "[ns.x]|reverse %}{% endfor %}") == limit);
  CHECK(outcome(grow + "namespace(y=ns.x) %}{% endfor %}ok") == "ok");
  CHECK(outcome("{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = [ns] %}{{ ns.b }}") == "[<Namespace>]");
  CHECK(outcome("{% for x in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}") == "TrueFalse");
  CHECK(outcome("{% set ns = namespace(x=[1]) %}{% for i in range(500) %}{% for j in ns.x %}{% set ns.x = [loop] %}"
                "{% endfor %}{% endfor %}ok") == "ok");
  // Shared parts are few in memory, and many when they are written or compared.
  const std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  CHECK(outcome(shared + "{{ ns.x }}") == limit);
  CHECK(outcome(shared + "{{ ns.x|tojson }}") == limit);
  CHECK(outcome(shared + "{% set y = ns.x %}" + shared + "{{ y == ns.x }}") == limit);
}

TEST_CASE("a large conversation stays within the limits", "[jinja]") {
  std::string messages;
  for (int i = 0; i < 2000; ++i) {
    messages +=
        std::string(i > 0 ? "," : "") + R"({"role": "user", "content": ")" + repeated("words and more ", 60) + "\"}";
  }
  const std::string source =
      "{% set ns = namespace(last=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.last %}"
      "{% set ns.last = loop.index %}{% endif %}{% endfor %}{% for m in messages %}"
      "{{ '<|im_start|>' + m.role + '\\n' + m.content|trim + '<|im_end|>' }}{% endfor %}";
  CHECK(rendered(source, R"({"messages": [)" + messages + "]}").size() > 1'800'000);
  // A loop over the messages before each message, as one published template has it.
  messages.clear();
  for (int i = 0; i < 1000; ++i) messages += std::string(i > 0 ? "," : "") + R"({"role": "user", "content": "hi"})";
  const std::string squared =
      "{% for m in messages %}{% set ns = namespace(found=false) %}{% for i in range(loop.index0 - 1, -1, -1) %}"
      "{% if not ns.found %}{% set ns.found = true %}{% endif %}{% endfor %}{{ m.content }}{% endfor %}";
  CHECK(rendered(squared, R"({"messages": [)" + messages + "]}").size() == 2000);
}

TEST_CASE("errors name the place and the construct", "[jinja]") {
  const auto message = [](const std::string& source) -> std::string {
    try {
      return rendered(source);
    } catch (const TemplateError& error) {
      return std::to_string(error.line()) + ":" + std::to_string(error.column()) + " " + error.what();
    }
  };
  CHECK(message("a\n  {{ x.y }}\n") ==
        "2:6 chat template, line 2, column 6: 'x' is undefined (at `x.y }}`). Change the messages, or use another "
        "template. [chat.template-failed]");
  CHECK(
      message("{% if a %}\n{{ 1 | nope2 }}{% endif %}{{ \xC3\xA9 | nope }}") ==
      "2:34 chat template, line 2, column 34: there is no filter named 'nope' (at `nope }}`). Correct the template, or "
      "use another one. [chat.template-syntax]");
  CHECK(message("{{ raise_exception('no\\x1b tools') }}") ==
        "1:4 chat template, line 1, column 4: it refuses: no\\x1b tools (at `raise_exception('no\\x1b tools') }}`). "
        "Change "
        "the messages as it demands. [chat.template-raised]");
  CHECK(outcome(std::string((std::size_t{1} << 20) + 1, 'x')) == limit);
  CHECK(outcome("{% include 'x' %}") == "chat.template-syntax");
  CHECK(error_id([] { jinja::Date::parse("2025-02-29"); }) == "chat.bad-date");
  CHECK(error_id([] { jinja::Template("x").render("[]"); }) == "json.not-an-object");
}
