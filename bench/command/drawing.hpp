// What charts are drawn with: shapes and measured text, collected into an SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slm::bench {

/// Unicode text; what is no UTF-8 becomes U+FFFD, what no line shows (control characters) a space.
std::u32string decode_text(std::string_view text);

class Drawing {
 public:
  enum class Anchor { start, middle, end };
  static constexpr const char* ink = "#222222";
  static constexpr const char* faint = "#666666";
  static constexpr const char* grid = "#dddddd";

  /// A bound of the width of text in pixels: that of DejaVu Sans, the widest of the usual fonts.
  static double width(std::u32string_view text, double size);
  /// Lines of at most `room` pixels, broken at spaces where there are any; the last of `most` ends in … if text is cut.
  static std::vector<std::u32string> wrap(const std::string& text, double size, double room, int most);

  /// The colour of the n-th series (Okabe and Ito's, told apart by colour-blind readers too), and of text upon it.
  static const char* colour(std::size_t series);
  static const char* text_colour(std::size_t series);

  void rectangle(double x, double y, double width, double height, const char* fill);
  void line(double x1, double y1, double x2, double y2, const char* stroke, double width = 1);
  /// x, y: where its baseline starts, is in the middle or ends. A halo keeps lines behind it from touching it.
  void text(double x, double y, std::u32string_view text, double size, Anchor anchor = Anchor::start,
            const char* fill = ink, bool bold = false, bool halo = false);
  void upright_text(double x, double y, std::u32string_view text, double size);
  /// The mark of the n-th series: another form for each colour.
  void mark(double x, double y, std::size_t series);

  std::string svg(double width, double height, const std::string& title) const;

 private:
  std::string body_;
};

}  // namespace slm::bench
