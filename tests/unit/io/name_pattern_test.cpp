// Patterns of an adapter's configuration have the meaning of Python's re, at a bounded cost.
#include "slm/io/name_pattern.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <string_view>

using namespace slm;

namespace {

bool means(std::string_view pattern, std::string_view name) {
  std::int64_t budget = 1'000'000;
  const auto parsed = NamePattern::parse(pattern);
  REQUIRE(parsed);
  return parsed->matches(name, budget);
}

}  // namespace

TEST_CASE("expressions have the meaning of Python's re") {
  CHECK(means("q_proj", "model.layers.0.self_attn.q_proj"));
  CHECK(means("q_proj", "q_proj"));
  CHECK_FALSE(means("^q_proj", "layers.q_proj"));
  CHECK(means("^.*q_proj", "layers.q_proj"));
  CHECK(means("q.proj", "q_proj"));
  CHECK_FALSE(means("q\\.proj", "q_proj"));
  CHECK(means("(q|k|v)_proj", "a.k_proj"));
  CHECK_FALSE(means("(q|k|v)_proj", "a.o_proj"));
  CHECK(means("layers\\.(?:[02468]|1[0-3])\\.x", "layers.12.x"));
  CHECK_FALSE(means("layers\\.(?:[02468]|1[0-3])\\.x", "layers.15.x"));
  CHECK(means("a+b?c*", "aaab"));
  CHECK_FALSE(means("a+b?c*", "b"));
  CHECK(means("(ab)*?c", "ababc"));
  CHECK(means("[^x]*", "abc"));
  CHECK_FALSE(means("[^x]+", "axc"));
  CHECK(means("", "abc."));
  CHECK(means("a|", "a"));
  CHECK(means("(a*)*b", "aab"));
  for (const char* unknown :
       {"(", ")", "a)", "[", "[a", "*", "a{2}", "(?=a)", "(?i)a", "\\1", "\\b", "a^", "a$b", "\\"})
    CHECK_FALSE(NamePattern::parse(unknown));
  CHECK_FALSE(NamePattern::parse(std::string(5000, 'a')));
  CHECK_FALSE(NamePattern::parse(std::string(500, '(') + std::string(500, ')')));
}
