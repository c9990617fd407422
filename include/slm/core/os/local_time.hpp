// Local time and UTC of the operating system.
#pragma once

#include <ctime>
#include <optional>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// nullopt: the system does not know it.
inline std::optional<std::tm> local_time(std::time_t seconds) {
  std::tm local{};
#if defined(_WIN32)
  const bool known = ::localtime_s(&local, &seconds) == 0;
#else
  const bool known = ::localtime_r(&seconds, &local) != nullptr;
#endif
  return known ? std::optional(local) : std::nullopt;
}

inline std::optional<std::tm> utc_time(std::time_t seconds) {
  std::tm utc{};
#if defined(_WIN32)
  const bool known = ::gmtime_s(&utc, &seconds) == 0;
#else
  const bool known = ::gmtime_r(&seconds, &utc) != nullptr;
#endif
  return known ? std::optional(utc) : std::nullopt;
}

}}}
