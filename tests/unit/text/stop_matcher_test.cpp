// StopMatcher against a search of the whole text, and its rules one by one.
#include "slm/text/stop_matcher.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

using slm::StopMatcher;

namespace {

/// The visible part of a text: all before the stop string that ends first (of those, the longest).
std::string cut(const std::string& text, const std::vector<std::string>& stops, bool& stopped) {
  std::size_t end = std::string::npos, begin = text.size();
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    const std::size_t found = text.find(stop);
    if (found == std::string::npos) continue;
    const std::size_t found_end = found + stop.size();
    if (found_end < end || (found_end == end && found < begin)) end = found_end, begin = found;
  }
  stopped = end != std::string::npos;
  return text.substr(0, begin);
}

std::string all(StopMatcher& matcher, std::initializer_list<std::string_view> pieces) {
  std::string out;
  for (const std::string_view piece : pieces) out += matcher.push(piece);
  return out;
}

}  // namespace

TEST_CASE("stop strings: holds back only what could become one") {
  StopMatcher matcher({"END", "\n\n"});
  CHECK(matcher.push("abc") == "abc");
  CHECK(matcher.push("E") == "");
  CHECK(matcher.push("N") == "");
  CHECK(matcher.push("x\n") == "ENx");
  CHECK_FALSE(matcher.stopped());
  CHECK(matcher.finish() == "\n");
}

TEST_CASE("stop strings: the stop itself and what follows are never shown") {
  StopMatcher matcher({"STOP"});
  CHECK(all(matcher, {"go S", "TO", "P and on"}) == "go ");
  CHECK(matcher.stopped());
  CHECK(matcher.found() == "STOP");
  CHECK(matcher.push("more") == "");
  CHECK(matcher.finish() == "");
}

TEST_CASE("stop strings: one that ends where the text may not stop does not count") {
  StopMatcher matcher({"bc", "cd"});
  CHECK(matcher.push("abc", false) == "a");
  CHECK_FALSE(matcher.stopped());
  CHECK(matcher.push("d") == "b");  // this one only began there
  CHECK(matcher.found() == "cd");
}

TEST_CASE("stop strings: overlaps, ends, lengths") {
  StopMatcher overlap({"aab"});
  CHECK(all(overlap, {"a", "a", "a", "b"}) == "a");
  CHECK(overlap.stopped());

  StopMatcher first_end({"abcdef", "cd"});  // "cd" ends first although the other begins first and is listed first
  CHECK(all(first_end, {"xabcdef"}) == "xab");

  StopMatcher same_end({"b", "ab"});
  CHECK(all(same_end, {"xab"}) == "x");

  StopMatcher prefix({"ab", "abc"});
  CHECK(all(prefix, {"xabc"}) == "x");

  StopMatcher characters({"\u65E5\u672C"});
  CHECK(all(characters, {"\u65E5\u65E5", "\u672C"}) == "\u65E5");

  StopMatcher none({"", ""});
  CHECK_FALSE(none.active());
  CHECK(all(none, {"anything"}) == "anything");
}

TEST_CASE("stop strings agree with a search of the whole text, however it is cut") {
  std::mt19937 random(4);
  const auto word = [&](std::size_t shortest, std::size_t longest) {
    std::string made;
    for (std::size_t left = shortest + random() % (longest - shortest + 1); left > 0; --left) {
      made += static_cast<char>('a' + random() % 3);
    }
    return made;
  };
  int stops_found = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t left = 1 + random() % 4; left > 0; --left) stops.push_back(word(1, 6));
    const std::string text = word(0, 40);
    bool expected_stop = false;
    const std::string expected = cut(text, stops, expected_stop);
    StopMatcher matcher(stops);
    std::string shown;
    for (std::size_t position = 0; position < text.size() && !matcher.stopped();) {
      const std::size_t length = 1 + random() % 5;
      shown += matcher.push(std::string_view{text}.substr(position, length));
      position += length;
      // Nothing is held back without need: what is held back begins a stop string.
      const std::string held = text.substr(shown.size(), std::min(position, text.size()) - shown.size());
      if (!matcher.stopped() && !held.empty()) {
        REQUIRE(
            std::any_of(stops.begin(), stops.end(), [&](const std::string& stop) { return stop.starts_with(held); }));
      }
    }
    shown += matcher.finish();
    INFO("text " << text);
    REQUIRE(shown == expected);
    REQUIRE(matcher.stopped() == expected_stop);
    stops_found += expected_stop;
  }
  CHECK(stops_found > 1000);
}
