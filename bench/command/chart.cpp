#include "bench/command/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/command/drawing.hpp"

namespace slm::bench {

namespace {

using Anchor = Drawing::Anchor;

constexpr double picture_width = 760, margin = 24;
constexpr double title_size = 18, label_size = 13, figure_size = 12;

/// Round places on an axis: multiples of 1, 2 or 5 times a power of ten, around [low, high].
struct Axis {
  Axis(double low, double high, int most) {
    const double range = high > low ? high - low : 1;
    const double power = std::pow(10, std::floor(std::log10(range / most)));
    step = 10 * power;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (range / (factor * power) <= most) {
        step = factor * power;
        break;
      }
    }
    first = std::floor(low / step + 1e-9);
    last = std::max(first + 1, std::ceil(high / step - 1e-9));
  }

  int count() const { return static_cast<int>(last - first) + 1; }
  double value(int tick) const { return (first + tick) * step; }
  /// 0..1 along the axis.
  double place(double at) const { return (at / step - first) / (last - first); }
  std::u32string label(int tick) const {
    const double at = value(tick);
    char digits[48];
    if (std::abs(at) >= 1e6 || step < 1e-4) {
      std::snprintf(digits, sizeof digits, "%.4g", at);
    } else {
      const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
      std::snprintf(digits, sizeof digits, "%.*f", decimals, at);
    }
    return decode_text(digits);
  }

  double step, first, last;  // first and last: in steps
};

/// Title and legend from y on; returns where the rest begins.
double heading(Drawing& drawing, double y, const std::string& title, const std::vector<std::string>& series,
               bool marks) {
  const double room = picture_width - 2 * margin;
  y += margin;
  for (const std::u32string& line : Drawing::wrap(title, title_size, room, 3)) {
    drawing.text(margin, y + title_size - 4, line, title_size, Anchor::start, Drawing::ink, true);
    y += title_size + 6;
  }
  if (series.size() < 2) return y + 8;
  y += 6;
  double x = margin;
  for (std::size_t i = 0; i < series.size(); ++i) {
    std::u32string name;
    for (const std::u32string& line : Drawing::wrap(series[i], label_size, room - 36, 1)) name = line;
    const double width = 18 + Drawing::width(name, label_size) + 18;
    if (x > margin && x + width > picture_width - margin) {
      x = margin;
      y += 20;
    }
    if (marks) {
      drawing.mark(x + 6, y + 7, i);
    } else {
      drawing.rectangle(x, y + 1, 12, 12, Drawing::colour(i));
    }
    drawing.text(x + 18, y + 12, name, label_size);
    x += width;
  }
  return y + 28;
}

bool measured(double value) { return std::isfinite(value) && value >= 0; }

std::string figure_of(double value) { return measured(value) ? shown(value) : "not measured"; }

double value_of(const BarChart::Group& group, std::size_t series) {
  return series < group.values.size() ? group.values[series] : std::nan("");
}

/// The bars of a chart between left and right, once the room for its labels is known.
struct BarArea {
  Drawing& drawing;
  const BarChart& chart;
  Axis axis;
  double left, right;

  double x(double value) const { return left + axis.place(value) * (right - left); }

  /// One below the other, each with its figure.
  void side_by_side(const BarChart::Group& group, double top, double height) const {
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const double value = value_of(group, s), y = top + static_cast<double>(s) * height;
      if (measured(value)) drawing.rectangle(left, y + 2, x(value) - left, height - 4, Drawing::colour(s));
      drawing.text((measured(value) ? x(value) : left) + 6, y + height / 2 + 4, decode_text(figure_of(value)),
                   figure_size, Anchor::start, measured(value) ? Drawing::ink : Drawing::faint);
    }
  }

  /// One after the other, figures inside where they fit, the sum at the end.
  void in_one(const BarChart::Group& group, double top, double height) const {
    double sum = 0;
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const double value = value_of(group, s);
      if (!measured(value)) continue;
      const double from = x(sum), width = x(sum + value) - from;
      const std::u32string figure = decode_text(shown(value));
      drawing.rectangle(from, top + 2, width, height - 4, Drawing::colour(s));
      if (Drawing::width(figure, figure_size) + 4 <= width) {
        drawing.text(from + width / 2, top + height / 2 + 4, figure, figure_size, Anchor::middle,
                     Drawing::text_colour(s));
      }
      sum += value;
    }
    drawing.text(x(sum) + 6, top + height / 2 + 4, decode_text(shown(sum)), figure_size);
  }
};

/// The whole chart from y on; returns where it ends.
double draw(Drawing& drawing, const BarChart& chart, double y) {
  y = heading(drawing, y, chart.title, chart.series, false);
  double highest = 0, figures = 0, labels = 0;
  for (const BarChart::Group& group : chart.groups) {
    double sum = 0;
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      const double value = value_of(group, s);
      if (measured(value)) sum = chart.stacked ? sum + value : value;
      highest = std::max(highest, sum);
      figures = std::max(figures, Drawing::width(decode_text(figure_of(measured(value) ? sum : value)), figure_size));
    }
    labels = std::max(labels, Drawing::width(decode_text(group.label), label_size));
  }
  labels = std::min(labels, 240.0);
  const Axis axis(0, highest, 6);
  const BarArea area{drawing, chart, axis, margin + labels + 10, picture_width - margin - figures - 6};

  constexpr double gap = 14, line_height = 17;
  const double bar = chart.series.size() > 1 && !chart.stacked ? 20 : 24;
  const double bars = bar * (chart.stacked ? 1 : static_cast<double>(chart.series.size()));
  std::vector<std::vector<std::u32string>> wrapped;
  const double top = y;
  double bottom = y;
  for (const BarChart::Group& group : chart.groups) {
    wrapped.push_back(Drawing::wrap(group.label, label_size, labels, 3));
    bottom += std::max(bars, line_height * static_cast<double>(wrapped.back().size())) + gap;
  }
  for (int tick = 0; tick < axis.count(); ++tick) {
    const double x = area.x(axis.value(tick));
    drawing.line(x, y, x, bottom, Drawing::grid);
    drawing.text(x, bottom + 16, axis.label(tick), figure_size, Anchor::middle, Drawing::faint);
  }
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const double text_height = line_height * static_cast<double>(wrapped[g].size());
    const double height = std::max(bars, text_height) + gap, middle = y + height / 2;
    for (std::size_t l = 0; l < wrapped[g].size(); ++l) {
      drawing.text(area.left - 10, middle - text_height / 2 + line_height * static_cast<double>(l) + 13, wrapped[g][l],
                   label_size, Anchor::end);
    }
    if (chart.stacked) {
      area.in_one(chart.groups[g], middle - bars / 2, bar);
    } else {
      area.side_by_side(chart.groups[g], middle - bars / 2, bar);
    }
    y += height;
  }
  drawing.line(area.left, top, area.left, bottom, Drawing::faint);
  for (const std::u32string& line : Drawing::wrap(chart.unit, label_size, area.right - area.left, 1)) {
    drawing.text((area.left + area.right) / 2, bottom + 38, line, label_size, Anchor::middle, Drawing::faint);
  }
  return bottom + 54;
}

struct Box {
  double left, top, right, bottom;

  bool touches(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// Puts figures beside marks where nothing else stands; one that finds no place is left out.
class Figures {
 public:
  Figures(Drawing& drawing, Box area) : drawing_(drawing), area_(area) {}

  void keep_free(double x, double y) { taken_.push_back({x - 6, y - 6, x + 6, y + 6}); }

  void place(double x, double y, double value, const char* colour) {
    const std::u32string figure = decode_text(shown(value));
    const double half = Drawing::width(figure, figure_size) / 2, height = figure_size;
    const Box places[] = {{x - half, y - 8 - height, x + half, y - 8},
                          {x - half, y + 8, x + half, y + 8 + height},
                          {x + 9, y - height / 2, x + 9 + 2 * half, y + height / 2},
                          {x - 9 - 2 * half, y - height / 2, x - 9, y + height / 2}};
    for (const Box& box : places) {
      if (box.left < area_.left || box.right > area_.right || box.top < area_.top || box.bottom > area_.bottom)
        continue;
      if (std::any_of(taken_.begin(), taken_.end(), [&](const Box& other) { return box.touches(other); })) continue;
      drawing_.text(box.left + half, box.bottom - 2, figure, figure_size, Anchor::middle, colour, false, true);
      taken_.push_back(box);
      return;
    }
  }

 private:
  Drawing& drawing_;
  Box area_;
  std::vector<Box> taken_;
};

std::vector<LineChart::Point> sound_points(const LineChart::Series& series) {
  std::vector<LineChart::Point> points;
  for (const LineChart::Point& point : series.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) points.push_back(point);
  }
  return points;
}

}  // namespace

std::string shown(double value) {
  char digits[48];
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-3)) {
    std::snprintf(digits, sizeof digits, "%.3g", value);
    return digits;
  }
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  std::snprintf(digits, sizeof digits, "%.*f", decimals, value);
  std::string text = digits;
  if (decimals > 0) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string to_svg(const BarChart& chart) { return to_svg(std::vector{chart}); }

std::string to_svg(const std::vector<BarChart>& charts) {
  Drawing drawing;
  double y = 0;
  for (const BarChart& chart : charts) y = draw(drawing, chart, y);
  return drawing.svg(picture_width, y, charts.empty() ? "" : charts.front().title);
}

std::string to_svg(const LineChart& chart) {
  std::vector<std::string> names;
  std::vector<std::vector<LineChart::Point>> points;
  double low_x = INFINITY, high_x = -INFINITY, low_y = 0, high_y = 0;
  for (const LineChart::Series& series : chart.series) {
    names.push_back(series.name);
    points.push_back(sound_points(series));
    for (const auto [x, y] : points.back()) {
      low_x = std::min(low_x, x), high_x = std::max(high_x, x);
      low_y = std::min(low_y, y), high_y = std::max(high_y, y);
    }
  }
  if (low_x > high_x) low_x = 0, high_x = 1;
  const Axis across(low_x, high_x, 10), up(low_y, high_y, 6);

  Drawing drawing;
  const double top = heading(drawing, 0, chart.title, names, true), bottom = top + 320;
  double figures = 0;
  for (int tick = 0; tick < up.count(); ++tick) {
    figures = std::max(figures, Drawing::width(up.label(tick), figure_size));
  }
  const double left = margin + 22 + figures + 8, right = picture_width - margin;
  constexpr double inset = 22;  // room for the figures of the first and the last point
  const auto x_at = [&](double x) { return left + inset + across.place(x) * (right - left - 2 * inset); };
  const auto y_at = [&](double y) { return bottom - up.place(y) * (bottom - top); };
  for (int tick = 0; tick < up.count(); ++tick) {
    const double y = y_at(up.value(tick));
    drawing.line(left, y, right, y, Drawing::grid);
    drawing.text(left - 8, y + 4, up.label(tick), figure_size, Anchor::end, Drawing::faint);
  }
  for (int tick = 0; tick < across.count(); ++tick) {
    const double x = x_at(across.value(tick));
    drawing.line(x, bottom, x, bottom + 4, Drawing::faint);
    drawing.text(x, bottom + 19, across.label(tick), figure_size, Anchor::middle, Drawing::faint);
  }
  drawing.line(left, bottom, right, bottom, Drawing::faint);
  for (const std::u32string& line : Drawing::wrap(chart.x_label, label_size, right - left, 1)) {
    drawing.text((left + right) / 2, bottom + 42, line, label_size, Anchor::middle, Drawing::faint);
  }
  for (const std::u32string& line : Drawing::wrap(chart.y_label, label_size, bottom - top, 1)) {
    drawing.upright_text(margin + 8, (top + bottom) / 2, line, label_size);
  }

  Figures beside(drawing, {left, top - 18, picture_width - 4, bottom});
  for (std::size_t s = 0; s < points.size(); ++s) {
    for (std::size_t i = 0; i < points[s].size(); ++i) {
      const auto [x, y] = points[s][i];
      if (i > 0) {
        drawing.line(x_at(points[s][i - 1].x), y_at(points[s][i - 1].y), x_at(x), y_at(y), Drawing::colour(s), 2);
      }
      beside.keep_free(x_at(x), y_at(y));
    }
  }
  for (std::size_t s = 0; s < points.size(); ++s) {
    for (const auto [x, y] : points[s]) {
      drawing.mark(x_at(x), y_at(y), s);
      beside.place(x_at(x), y_at(y), y, Drawing::ink);
    }
  }
  return drawing.svg(picture_width, bottom + 58, chart.title);
}

}  // namespace slm::bench
