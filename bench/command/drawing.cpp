#include "bench/command/drawing.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace slm::bench {

namespace {

/// A coordinate: tenths of a pixel.
std::string at(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.1f", value);
  return digits;
}

/// UTF-8, with what XML reads as markup escaped.
std::string escaped(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      if (c < 0x800) {
        out += static_cast<char>(0xc0 | c >> 6);
      } else {
        if (c < 0x10000) {
          out += static_cast<char>(0xe0 | c >> 12);
        } else {
          out += static_cast<char>(0xf0 | c >> 18);
          out += static_cast<char>(0x80 | (c >> 12 & 63));
        }
        out += static_cast<char>(0x80 | (c >> 6 & 63));
      }
      out += static_cast<char>(0x80 | (c & 63));
    }
  }
  return out;
}

/// In units of the font's size.
double width_of(char32_t c) {
  if (c >= 0x1100) return 1.05;
  if (c >= 0x80) return 0.85;
  if (std::u32string_view(U" .,:;'|!iIjl-()[]/").find(c) != std::u32string_view::npos) return 0.4;
  if (std::u32string_view(U"mwMW@%").find(c) != std::u32string_view::npos) return 1.0;
  if (c >= 'A' && c <= 'Z') return 0.76;
  return 0.64;
}

}  // namespace

std::u32string decode_text(std::string_view text) {
  constexpr char32_t broken = 0xfffd;
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<std::uint8_t>(text[i++]);
    if (first < 0x80) {
      out += first < 0x20 || first == 0x7f ? U' ' : char32_t{first};
      continue;
    }
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    char32_t c = first & (0x3f >> more);
    int seen = 0;
    while (seen < more && i < text.size() && (text[i] & 0xc0) == 0x80) {
      c = c << 6 | (static_cast<std::uint8_t>(text[i++]) & 63u);
      ++seen;
    }
    constexpr std::array<char32_t, 4> smallest{0, 0x80, 0x800, 0x10000};
    const bool sound = first >= 0xc2 && first < 0xf5 && seen == more && c >= smallest[static_cast<std::size_t>(more)] &&
                       c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) && c != 0xfffe && c != 0xffff;
    out += !sound ? broken : c < 0xa0 ? U' ' : c;
  }
  return out;
}

double Drawing::width(std::u32string_view text, double size) {
  double width = 0;
  for (const char32_t c : text) width += width_of(c) * size;
  return width;
}

std::vector<std::u32string> Drawing::wrap(const std::string& text, double size, double room, int most) {
  std::u32string rest = decode_text(text);
  std::vector<std::u32string> lines;
  while (!rest.empty()) {
    if (width(rest, size) <= room) {
      lines.push_back(rest);
      break;
    }
    const bool last = static_cast<int>(lines.size()) + 1 == most;
    std::size_t fits = 0;
    double used = last ? width(U"…", size) : 0;
    while (fits < rest.size() && used + width_of(rest[fits]) * size <= room) used += width_of(rest[fits++]) * size;
    if (fits == 0) fits = 1;
    if (last) {
      lines.push_back(rest.substr(0, fits) + U"…");
      break;
    }
    const std::size_t space = rest.rfind(U' ', fits);
    const bool at_space = space != std::u32string::npos && space > 0;
    lines.push_back(rest.substr(0, at_space ? space : fits));
    rest.erase(0, at_space ? space + 1 : fits);
  }
  return lines;
}

const char* Drawing::colour(std::size_t series) {
  constexpr std::array palette{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c"};
  return palette[series % palette.size()];
}

const char* Drawing::text_colour(std::size_t series) {
  constexpr std::array palette{"#ffffff", "#000000", "#ffffff", "#000000", "#ffffff", "#000000", "#000000"};
  return palette[series % palette.size()];
}

void Drawing::rectangle(double x, double y, double width, double height, const char* fill) {
  body_ += "<rect x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(width) + "\" height=\"" + at(height) +
           "\" fill=\"" + fill + "\"/>\n";
}

void Drawing::line(double x1, double y1, double x2, double y2, const char* stroke, double width) {
  body_ += "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" + at(y2) + "\" stroke=\"" +
           stroke + "\" stroke-width=\"" + at(width) + "\"/>\n";
}

void Drawing::text(double x, double y, std::u32string_view text, double size, Anchor anchor, const char* fill,
                   bool bold, bool halo) {
  constexpr std::array anchors{"start", "middle", "end"};
  body_ +=
      "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" font-size=\"" + at(size) + "\" text-anchor=\"" +
      anchors[static_cast<std::size_t>(anchor)] + "\" fill=\"" + fill + "\"" + (bold ? " font-weight=\"bold\"" : "") +
      (halo ? " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"" : "") + ">" + escaped(text) + "</text>\n";
}

void Drawing::upright_text(double x, double y, std::u32string_view text, double size) {
  body_ += "<text transform=\"translate(" + at(x) + " " + at(y) + ") rotate(-90)\" font-size=\"" + at(size) +
           "\" text-anchor=\"middle\" fill=\"" + faint + "\">" + escaped(text) + "</text>\n";
}

void Drawing::mark(double x, double y, std::size_t series) {
  const std::string fill = std::string("\" fill=\"") + colour(series) + "\"/>\n";
  const auto polygon = [&](std::initializer_list<std::array<double, 2>> corners) {
    body_ += "<polygon points=\"";
    for (const auto& [dx, dy] : corners) body_ += at(x + dx) + "," + at(y + dy) + " ";
    body_ += fill;
  };
  switch (series % 4) {
    case 0: body_ += "<circle cx=\"" + at(x) + "\" cy=\"" + at(y) + "\" r=\"4.5" + fill; break;
    case 1: polygon({{-4, -4}, {4, -4}, {4, 4}, {-4, 4}}); break;
    case 2: polygon({{0, -5.5}, {5, 4}, {-5, 4}}); break;
    default: polygon({{0, -5.5}, {5.5, 0}, {0, 5.5}, {-5.5, 0}});
  }
}

std::string Drawing::svg(double width, double height, const std::string& title) const {
  const std::string size = "width=\"" + at(width) + "\" height=\"" + at(height) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " + at(width) + " " + at(height) +
         "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<title>" + escaped(decode_text(title)) +
         "</title>\n<rect " + size + " fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
}

}  // namespace slm::bench
