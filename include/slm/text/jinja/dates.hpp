// The date that a template may ask for, and strftime.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/os/local_time.hpp"
#include "slm/text/jinja/limits.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// A point of local time.
struct Date {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;

  /// Reads YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS. Throws Error ("chat.bad-date").
  static Date parse(std::string_view text) {
    Date date;
    int* const parts[]{&date.year, &date.month, &date.day, &date.hour, &date.minute, &date.second};
    constexpr std::string_view form = "0000-00-00T00:00:00";
    bool good = text.size() == 10 || text.size() == form.size();
    std::size_t part = 0;
    for (std::size_t i = 0; good && i < text.size(); ++i) {
      const bool digit = text[i] >= '0' && text[i] <= '9';
      good = form[i] == '0' ? digit : text[i] == form[i];
      if (i == 0 || form[i - 1] != '0') *parts[part] = 0;
      if (digit) *parts[part] = *parts[part] * 10 + (text[i] - '0');
      part += form[i] == '0' ? 0 : 1;
    }
    if (good && date.month >= 1 && date.month <= 12 && date.day >= 1 && date.hour < 24 && date.minute < 60 &&
        date.second < 61) {
      const std::int64_t first = days(date.year, date.month, 1);
      const std::int64_t next = date.month == 12 ? days(date.year + 1, 1, 1) : days(date.year, date.month + 1, 1);
      if (date.day <= next - first) return date;
    }
    throw Error("chat.bad-date", "expected a date as YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, found " + quote(text),
                "Correct the date");
  }

  static Date now() {
    const std::optional<std::tm> local = detail::local_time(std::time(nullptr));
    if (!local) return {};
    return {local->tm_year + 1900, local->tm_mon + 1, local->tm_mday, local->tm_hour, local->tm_min, local->tm_sec};
  }

  /// Days since 1970-01-01.
  static std::int64_t days(int year, int month, int day) {
    const std::int64_t y = year - (month <= 2 ? 1 : 0);
    const std::int64_t era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
    const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
  }

  int weekday() const { return static_cast<int>(((days(year, month, day) + 4) % 7 + 7) % 7); }  // 0: Sunday
  int day_of_year() const { return static_cast<int>(days(year, month, day) - days(year, 1, 1)) + 1; }
};

/// The date in a format of C's strftime, with English names.
inline std::string formatted(const Date& date, std::string_view format) {
  static constexpr std::array<std::string_view, 7> weekdays{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                            "Thursday", "Friday", "Saturday"};
  static constexpr std::array<std::string_view, 12> months{"January",   "February", "March",    "April",
                                                           "May",       "June",     "July",     "August",
                                                           "September", "October",  "November", "December"};
  std::string out;
  const auto put = [&out](int value, std::size_t width, char fill, char flag) {
    std::string digits = std::to_string(value);
    if (flag == '-') width = 0;
    if (flag == '_') fill = ' ';
    if (flag == '0') fill = '0';
    if (digits.size() < width) digits.insert(0, width - digits.size(), fill);
    out += digits;
  };
  const std::string_view weekday = weekdays[static_cast<std::size_t>(date.weekday())];
  const std::string_view month = months[static_cast<std::size_t>(date.month - 1)];
  const int hour = date.hour % 12 == 0 ? 12 : date.hour % 12;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    char flag = ' ';
    if (format[++at] == '-' || format[at] == '_' || format[at] == '0') {
      flag = format[at];
      if (++at == format.size()) fail("the format of a date is incomplete");
    }
    switch (const char letter = format[at]) {
      case 'a': out += weekday.substr(0, 3); break;
      case 'A': out += weekday; break;
      case 'b':
      case 'h': out += month.substr(0, 3); break;
      case 'B': out += month; break;
      case 'd': put(date.day, 2, '0', flag); break;
      case 'e': put(date.day, 2, ' ', flag); break;
      case 'm': put(date.month, 2, '0', flag); break;
      case 'y': put(date.year % 100, 2, '0', flag); break;
      case 'Y': put(date.year, 1, '0', flag); break;
      case 'j': put(date.day_of_year(), 3, '0', flag); break;
      case 'H': put(date.hour, 2, '0', flag); break;
      case 'I': put(hour, 2, '0', flag); break;
      case 'M': put(date.minute, 2, '0', flag); break;
      case 'S': put(date.second, 2, '0', flag); break;
      case 'f': out += "000000"; break;
      case 'p': out += date.hour < 12 ? "AM" : "PM"; break;
      case 'w': put(date.weekday(), 1, '0', flag); break;
      case 'u': put(date.weekday() == 0 ? 7 : date.weekday(), 1, '0', flag); break;
      case 'F': out += formatted(date, "%Y-%m-%d"); break;
      case 'T': out += formatted(date, "%H:%M:%S"); break;
      case 'D':
      case 'x': out += formatted(date, "%m/%d/%y"); break;
      case 'R': out += formatted(date, "%H:%M"); break;
      case 'X': out += formatted(date, "%H:%M:%S"); break;
      case 'c': out += formatted(date, "%a %b %e %H:%M:%S %Y"); break;
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'z':
      case 'Z': break;  // as of a date without time zone
      case '%': out += '%'; break;
      default: fail("the format of a date has the unknown letter " + quote({&letter, 1}));
    }
  }
  return out;
}

}}}
