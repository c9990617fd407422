// Pictures of measurements as SVG: bars for what is compared, stacked bars for shares, lines for what depends on
// something. Text is measured before it is placed: long labels wrap, none overlaps or leaves the picture.
#pragma once

#include <string>
#include <vector>

namespace slm::bench {

/// Bars in groups, one for each series. Values are 0 or more; any other (NaN) is shown as not measured.
struct BarChart {
  struct Group {
    std::string label;
    std::vector<double> values;  // in the order of the series; those that lack are not measured
  };

  std::string title, unit;
  std::vector<std::string> series = {};
  std::vector<Group> groups = {};
  bool stacked = false;  // the series of a group one after the other in one bar
};

struct LineChart {
  struct Point {
    double x, y;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;  // in the order of x; those that are not finite are left out
  };

  std::string title, x_label, y_label;
  std::vector<Series> series;
};

/// The whole content of an SVG file. Labels may hold anything: they are escaped, broken UTF-8 is replaced.
std::string to_svg(const BarChart& chart);
std::string to_svg(const std::vector<BarChart>& charts);  // one below the other
std::string to_svg(const LineChart& chart);

/// A figure as the pictures and tables show it, with three digits: 0.0123, 4.56, 78.9, 1234.
std::string shown(double value);

}  // namespace slm::bench
