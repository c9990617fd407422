// Pictures: every text inside, none over another, nothing of a label read as markup.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "bench/command/chart.hpp"
#include "bench/command/drawing.hpp"

using namespace slm::bench;

namespace {

struct Text {
  double left, top, right, bottom;
  std::string content;
};

std::string unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at) {
      text.replace(at, std::string(from).size(), to);
    }
  }
  return text;
}

/// The upright axis title is left out.
std::vector<Text> texts_of(const std::string& svg) {
  static const std::regex pattern(
      "<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" font-size=\"([0-9.]+)\" text-anchor=\"(\\w+)\"[^>]*>([^<]*)</text>");
  std::vector<Text> texts;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), pattern); it != std::sregex_iterator(); ++it) {
    const std::smatch& found = *it;
    const double x = std::stod(found[1]), y = std::stod(found[2]), size = std::stod(found[3]);
    const std::string content = unescaped(found[5]);
    const double width = Drawing::width(decode_text(content), size);
    const double left = found[4] == "end" ? x - width : found[4] == "middle" ? x - width / 2 : x;
    texts.push_back({left, y - size * 0.8, left + width, y + size * 0.2, content});
  }
  return texts;
}

/// The first fault: a text that leaves the picture, or two that overlap; empty when there is none.
std::string layout_fault(const std::string& svg) {
  std::smatch size;
  if (!std::regex_search(svg, size, std::regex("viewBox=\"0 0 ([0-9.]+) ([0-9.]+)\""))) return "no view box";
  const double width = std::stod(size[1]), height = std::stod(size[2]);
  const std::vector<Text> texts = texts_of(svg);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Text& a = texts[i];
    if (a.left < 0 || a.top < 0 || a.right > width || a.bottom > height) return "outside: " + a.content;
    for (std::size_t k = 0; k < i; ++k) {
      const Text& b = texts[k];
      const bool apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      if (!apart) return "'" + a.content + "' over '" + b.content + "'";
    }
  }
  return "";
}

bool shows(const std::string& svg, const std::string& content) {
  for (const Text& text : texts_of(svg)) {
    if (text.content == content) return true;
  }
  return false;
}

BarChart bars() {
  return {.title = "Decoding",
          .unit = "tokens/s",
          .series = {"one", "two"},
          .groups = {{"small", {312.4, 4123}}, {"large", {4.2, std::nan("")}}}};
}

}  // namespace

TEST_CASE("bars carry their figures, their series and what was not measured") {
  const std::string svg = to_svg(bars());
  for (const char* text :
       {"Decoding", "tokens/s", "one", "two", "small", "large", "312", "4123", "4.2", "not measured"}) {
    CHECK(shows(svg, text));
  }
  CHECK(layout_fault(svg) == "");
}

TEST_CASE("labels of any length wrap or end in dots, inside the picture") {
  BarChart chart = bars();
  const std::string words = "a device with a name that goes on and on, of a vendor who has many of them, ";
  chart.title = words + words + words;
  chart.unit = words + words;
  chart.series = {words, std::string(300, 'W')};
  chart.groups[0].label = words + words + words;
  chart.groups[1].label = std::string(300, 'm');
  CHECK(layout_fault(to_svg(chart)) == "");
  chart.stacked = true;
  CHECK(layout_fault(to_svg(chart)) == "");
  CHECK(layout_fault(to_svg(std::vector<BarChart>{chart, bars(), chart})) == "");
  const LineChart lines{words + words, words + words, words, {{words, {{0, 1}, {1, 2}}}, {"b", {{0, 1}}}}};
  CHECK(layout_fault(to_svg(lines)) == "");
}

TEST_CASE("the check of the layout finds texts that overlap and texts that leave the picture") {
  Drawing drawing;
  drawing.text(10, 20, U"one text", 12);
  CHECK(layout_fault(drawing.svg(200, 40, "")) == "");
  CHECK(layout_fault(drawing.svg(30, 40, "")) != "");
  drawing.text(30, 24, U"another", 12);
  CHECK(layout_fault(drawing.svg(200, 40, "")) != "");
}

TEST_CASE("stacked bars show parts that have room, and the sum") {
  const BarChart chart{"Time", "%", {"draft", "verify", "rest"}, {{"a", {22, 77.6, 0.4}}}, true};
  const std::string svg = to_svg(chart);
  CHECK(shows(svg, "22"));
  CHECK(shows(svg, "77.6"));
  CHECK_FALSE(shows(svg, "0.4"));
  CHECK(shows(svg, "100"));
  CHECK(layout_fault(svg) == "");
}

TEST_CASE("lines have round ticks, and figures where there is room") {
  LineChart chart{"Speed-up", "draft tokens", "times", {{"one", {}}, {"two", {}}}};
  for (int i = 1; i <= 8; ++i) {
    chart.series[0].points.push_back({double(i), 1 + 0.1 * i});
    chart.series[1].points.push_back({double(i), 1.01 + 0.1 * i});
  }
  const std::string svg = to_svg(chart);
  CHECK(layout_fault(svg) == "");
  for (const char* tick : {"1", "8", "0.5", "1.5"}) CHECK(shows(svg, tick));
  chart.series[0].points.clear();
  for (int i = 0; i < 400; ++i) chart.series[0].points.push_back({double(i), std::sin(i)});
  CHECK(layout_fault(to_svg(chart)) == "");
}

TEST_CASE("a chart of nothing, of one point and of any numbers is a picture") {
  constexpr double huge = 1e300, none = std::numeric_limits<double>::infinity();
  CHECK(layout_fault(to_svg(BarChart{"", "", {}, {}})) == "");
  CHECK(layout_fault(to_svg(std::vector<BarChart>{})) == "");
  CHECK(layout_fault(to_svg(LineChart{"", "", "", {}})) == "");
  CHECK(layout_fault(to_svg(LineChart{"", "x", "y", {{"", {{3, 4}}}}})) == "");
  CHECK(layout_fault(
            to_svg(LineChart{"", "x", "y", {{"a", {{none, 1}, {1, none}}}, {"b", {{2, huge}, {3, -huge}}}}})) == "");
  CHECK(layout_fault(to_svg(BarChart{"", "", {"a"}, {{"x", {huge}}, {"y", {-1}}, {"z", {none}}, {"none", {}}}})) == "");
  CHECK(layout_fault(to_svg(BarChart{"", "", {"a"}, {{"x", {1e-300}}, {"y", {0}}}})) == "");
}

TEST_CASE("labels are text, whatever they hold") {
  BarChart chart = bars();
  chart.title = "</text><script>alert(1)</script> \"&amp;'";
  chart.groups[0].label = "\xff\xfe broken \x01\x1b[31m \xf0\x9f\x98\x80 \xed\xa0\x80 \xc0\x80";
  const std::string svg = to_svg(chart);
  CHECK(svg.find("<script") == std::string::npos);
  CHECK(svg.find("&lt;script&gt;") != std::string::npos);
  for (const char c : svg) CHECK((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
  CHECK(decode_text("\xed\xa0\x80") == U"\ufffd");  // a surrogate
  CHECK(decode_text("\xc0\x80") == U"\ufffd");      // too long a form of 0
  CHECK(decode_text("a\xe2\x82") == U"a\ufffd");    // cut off
  CHECK(decode_text("\xf0\x9f\x98\x80") == U"\U0001f600");
}

TEST_CASE("figures have three digits") {
  CHECK(shown(0) == "0");
  CHECK(shown(0.01234) == "0.0123");
  CHECK(shown(0.5) == "0.5");
  CHECK(shown(1) == "1");
  CHECK(shown(2.499) == "2.5");
  CHECK(shown(9.999) == "10");
  CHECK(shown(78.94) == "78.9");
  CHECK(shown(99.97) == "100");
  CHECK(shown(1234.4) == "1234");
  CHECK(shown(1.5e9) == "1.5e+09");
}
