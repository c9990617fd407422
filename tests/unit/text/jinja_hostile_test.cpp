// Templates that would take all time or memory: each ends in an error soon.
#include <catch2/catch.hpp>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/jinja/search.hpp"
#include "slm/text/jinja/template.hpp"
#include "support/templates.hpp"

using namespace slm;

namespace {

std::string times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// Runs `body` more often than any limit allows.
std::string endless(const std::string& body, const std::string& before = "") {
  return before + "{% for i in range(90000) %}{% for j in range(90000) %}" + body + "{% endfor %}{% endfor %}";
}

/// Evaluates an expression more often than any limit allows.
std::string again(const std::string& expression, const std::string& before = "") {
  return endless("{% set x = " + expression + " %}", before);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The id of what rendering throws, or "".
std::string error_of(const std::string& source, const std::string& variables) {
  try {
    jinja::Template(source).render(variables);
    return "";
  } catch (const Error& error) {
    return error.id();
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr double most_seconds = 5;
#else
constexpr double most_seconds = 0.15;  // 0.05 is expected; the rest is for slow machines
#endif

const std::string limit = "chat.template-limit";

}  // namespace

TEST_CASE("the fixtures' hostile templates end soon", "[jinja]") {
  for (const auto& example : testing::template_cases("limits.json")) {
    CAPTURE(example["name"].get<std::string>());
    const double begin = cpu_seconds();
    const std::string found = error_of(example["template"], example["context"].dump());
    CHECK(cpu_seconds() - begin < most_seconds);
    CHECK_THAT(found, Catch::Matchers::StartsWith("chat.template-"));
  }
}

TEST_CASE("hostile templates end soon, whatever they do", "[jinja]") {
  const std::string grow = "{% set n = namespace(s='abcdefgh', l=[1], d={}) %}{% for i in range(90000) %}";
  std::string outer, members;
  for (int i = 0; i < 2000; ++i) outer += "{% set v" + std::to_string(i) + " = 1 %}";
  for (int i = 0; i < 3000; ++i) members += ",p" + std::to_string(i) + "=1";
  const std::vector<std::string> hostile{
      // Statements and calls.
      endless(""),
      endless("x{{ i }}"),
      endless("{% set x %}x{% endset %}{% filter upper %}x{% endfilter %}{% with a = 1 %}{% endwith %}"),
      endless("{{ f(1, 2, a=3) }}", "{% macro f(b, c, a) %}{% endmacro %}"),
      endless("{{ f(" + members.substr(1) + ") }}", "{% macro f() %}{{ kwargs|length }}{% endmacro %}"),
      endless("{% call f() %}x{% endcall %}", "{% macro f() %}{{ caller() }}{% endmacro %}"),
      "{% for a in [1] %}" + outer + endless("{{ v0 }}") + "{% endfor %}",
      "{% for a in [1] %}" + outer + endless("{% macro f() %}{% endmacro %}") + "{% endfor %}",
      "{% for a in [1] %}" + outer + "{% macro f() %}{% endmacro %}" + endless("{{ f() }}") + "{% endfor %}",
      "{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{{ f(n - 2) }}{% endif %}{% endmacro %}{{ f(90) }}",
      "{% for x in range(10) recursive %}{% if loop.depth < 100 %}{{ loop(range(10)) }}{% endif %}{% endfor %}",
      "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}" + grow + "{% set n.s = f(n.s) %}{% endfor %}",
      endless("{% for c in l %}{% break %}{% endfor %}", "{% set l = range(90000) %}"),
      endless("{% for c in s %}{% break %}{% endfor %}", "{% set s = 'ab' * 5000 %}"),
      endless("{{ loop.cycle(*l) }}", "{% set l = [1] * 10000 %}"),
      endless("{{ [loop.changed(l), loop.previtem, loop.nextitem, loop.revindex] }}", "{% set l = [1] * 1000 %}"),
      // Values that grow.
      grow + "{% set n.s = n.s ~ n.s %}{% endfor %}",
      grow + "{% set n.s = n.s + 'a' %}{% endfor %}",
      grow + "{% set n.l = n.l + [i] %}{% endfor %}",
      grow + "{% set n.l = n.l + n.l %}{% endfor %}",
      grow + "{% set n.l = [n.l, n.l] %}{% endfor %}",
      "{% set n = namespace(l=[1]) %}{% for i in range(100) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l|tojson }}",
      again("namespace(a=1)"),
      again("[cycler(1, 2), joiner(), {'a': 1, i: j}, (1, 2)]"),
      again("range(90000)|list"),
      "{{ range(1000000000)|list|length }}",
      "{{ 'abcdefgh' * 100000000 }}",
      "{{ [[1] * 5000000] * 5000000 }}",
      again("[1] * 1000"),
      // Strings.
      "{{ ('a' * 7000000).find('a' * 3000000 + 'b') ~ ('a' * 7000000).find('a' * 3000000 + 'b') }}",
      "{{ ('a' * 7000000).rfind('b' + 'a' * 3000000) ~ ('a' * 7000000).rfind('b' + 'a' * 3000000) }}",
      again("[s.split(w), s.rsplit(w), s.count(w), s.partition(w), s.replace(w, w), w in s]",
            "{% set s = 'a' * 1000000 %}{% set w = 'a' * 500 + 'b' + 'a' * 500 %}"),
      again("'aaaaaaab' in s", "{% set s = 'a' * 1000000 %}"),
      again("s.startswith(t)", "{% set s = 'a' * 100000 %}{% set t = (s ~ 'b',) * 9000 %}"),
      again("s.endswith(t)", "{% set s = 'a' %}{% set t = ('b',) * 90000 %}"),
      again("s.removeprefix(s ~ 'b')", "{% set s = 'a' * 1000000 %}"),
      again("s == t and s <= t", "{% set s = 'a' * 1000000 %}{% set t = 'a' * 1000000 %}"),
      again("s[700] ~ s[::2] ~ s[::-1] ~ s|last", "{% set s = '\xC3\xA9' * 1000 %}"),
      again("s.upper() ~ s.title() ~ s.swapcase() ~ s.isupper() ~ s.isalnum()", "{% set s = '\xC4\x81' * 1000 %}"),
      again("[s.strip(), s.split(), s|int, s|float, s.isspace()]", "{% set s = '\xE3\x80\x80' * 1000 %}"),
      again("s.strip(t)", "{% set s = 'a' * 1000 %}{% set t = 'bcdefghijkl' * 100 + 'a' %}"),
      again("s.splitlines()", "{% set s = '\\n' * 1000 %}"),
      again("s|replace('', 'b')|indent(9)|escape|wordcount", "{% set s = 'a\\n' * 1000 %}"),
      again("'a'.center(10000) ~ 'a'.zfill(10000) ~ 'a\\na'|indent(10000)"),
      again("'%10000d' % 1 ~ '{:10000}'.format(1) ~ '{:\xC3\xA9^10000}'.format(1)"),
      again("'%.9000f' % 1.5e300 ~ '{:.9000e}'.format(1.5)"),
      again("('%s' * 100) % l ~ ('{0}' * 100).format(1)", "{% set l = (1,) * 100 %}"),
      again("('{z}' * 1000).format(z=1" + members + ")"),
      again("strftime_now('%c' * 4000)"),
      again("[1.5e-7, 1 % 3, 1e308 % 1e-300, 1.5|round(3), '1.5e-300'|float, 2 ** 0.5]|string"),
      "{{ ('a' * 60000000)|list }}",
      "{{ ('a' * 60000000).split('a') }}",
      "{{ ('a' * 60000000)|replace('a', 'aaaaaaaa') }}",
      "{{ ['a' * 1000000] * 1000 }}",
      "{{ (['a' * 1000000] * 1000)|join }}",
      "{{ ['a']|map('center', 100000)|list }}",
      "{{ '%.99999f' % 1 }}",
      "{{ '{:99999}'.format(1) }}",
      "{{ [1, 2]|tojson(indent=99999) }}",
      "{{ 'a\\n'|indent(99999) }}",
      // Lists and dicts.
      again("range(3000)|map('string')|sort(reverse=true)|unique|groupby(0)|map('first')|list"),
      "{{ ([s ~ 1, s ~ 2] * 5000)|sort|length }}{% set s = 'a' * 5000 %}" + again("([s ~ 1, s ~ 2] * 500)|sort"),
      again("dict(p).items()|unique|list|length", "{% set p = range(6000)|map('string')|batch(2)|list %}"),
      again("([{'a': {'b': 1}}] * 900)|sort(attribute='a.b,a.b')|map(attribute='a.b')|sum"),
      "{{ [1]|sort(attribute='a,' * 4000000) }}",
      again("([d] * 900)|selectattr('a.b', 'defined')|rejectattr('a')|list", "{% set d = {'a': {'b': 1}} %}"),
      again("[1]|batch(90000, 1)|list ~ [1]|slice(90000, 1)|list"),
      again("-1 in l or l.count(-1) or l|max < l|min", "{% set l = range(90000)|list %}"),
      again("l[::2] ~ l[::-1]", "{% set l = range(90000)|list %}"),
      again("l == l[:]", "{% set l = range(90000)|list %}"),
      again("dict(p)|dictsort ~ dict(p).items()|list", "{% set p = range(1000)|map('string')|batch(2)|list %}"),
      again("[1, 2.5, {'a': none}]|tojson(indent=1000, separators=(s, s))", "{% set s = 'ab' * 1000 %}"),
      again("d|tojson(sort_keys=true) ~ d", "{% set d = {'b': '\\x01' * 1000, 'a': '\xC3\xA9' * 1000} %}"),
      again("('[' * 60 ~ ']' * 60)|from_json|tojson|from_json"),
      again("('['~ '1,' * 1000 ~ '1]')|from_json|join(',' * 1000)"),
      again("{}[s] is defined or undefined_name or 1.nothing or {}|attr(s)", "{% set s = 'a' * 1000 %}"),
      // The source.
      "{{ " + times(20'000, "(") + "1" + times(20'000, ")") + " }}",
      "{{ " + times(60'000, "[") + "1",
      times(130'000, "{"),
      "{{ 1" + times(20'000, "|string") + " }}",
      times(130'000, "{{"),
      "{{ " + times(120'000, "-") + "1 }}",
      "{% if 0 %}" + times(9'000, "{% elif 0 %}x") + "{% endif %}" + endless(""),
      times(13'000, "{{ x|y }}"),
      "{{ '" + times(100'000, "a") + "' }}" + endless(""),
      "{#" + times(120'000, "a") + "#}" + endless(""),
  };
  for (const std::string& source : hostile) {
    CAPTURE(source.substr(0, 300));
    const double begin = cpu_seconds();
    const std::string found = error_of(source, "{}");
    const double seconds = cpu_seconds() - begin;
    CAPTURE(seconds);
    CHECK(seconds < most_seconds);
    CHECK((found == limit || found == "chat.template-syntax" || found == "chat.template-failed"));
  }
}

TEST_CASE("a search finds what std::string finds, from both sides", "[jinja]") {
  std::mt19937 random(3);
  jinja::Heap heap;
  std::size_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text, wanted;
    for (std::size_t i = random() % 120; i > 0; --i) text += random() % 8 == 0 ? 'b' : 'a';
    if (random() % 2 == 0) wanted = text.substr(random() % (text.size() + 1), random() % 40);
    for (std::size_t i = random() % 4; i > 0; --i) wanted += random() % 8 == 0 ? 'b' : 'a';
    const std::size_t begin = random() % (text.size() + 1), end = begin + random() % (text.size() - begin + 1);
    const auto expected = [&](std::size_t at) { return at == std::string::npos ? at : at + begin; };
    const std::string part = text.substr(begin, end - begin);
    CAPTURE(text, wanted, begin, end);
    const std::size_t at = jinja::Search(heap, wanted).in(text, begin, end);
    REQUIRE(at == expected(part.find(wanted)));
    REQUIRE(jinja::Search(heap, wanted, true).in(text, begin, end) == expected(part.rfind(wanted)));
    found += at != jinja::Search::none && wanted.size() > jinja::Search::direct ? 1 : 0;
  }
  CHECK(found > 100);  // long ones
}
