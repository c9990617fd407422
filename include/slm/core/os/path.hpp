// Paths of UTF-8 texts. Texts that name files are UTF-8 on every system, and path::string() of libstdc++ is too.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

#if defined(_WIN32)
// Declared here because <windows.h> defines macros with common names.
extern "C" {
__declspec(dllimport) int __stdcall MultiByteToWideChar(unsigned, unsigned long, const char*, int, wchar_t*, int);
__declspec(dllimport) int __stdcall WideCharToMultiByte(unsigned, unsigned long, const wchar_t*, int, char*, int,
                                                        const char*, int*);
}
#endif

namespace slm { inline namespace v0_1 {

#if defined(_WIN32)

namespace detail {

inline constexpr unsigned utf8_page = 65001;

inline std::wstring wide_text(std::string_view utf8) {
  const int size = static_cast<int>(utf8.size());
  std::wstring wide(static_cast<std::size_t>(MultiByteToWideChar(utf8_page, 0, utf8.data(), size, nullptr, 0)), L'\0');
  MultiByteToWideChar(utf8_page, 0, utf8.data(), size, wide.data(), static_cast<int>(wide.size()));
  return wide;
}

inline std::string utf8_text(std::wstring_view wide) {
  const int size = static_cast<int>(wide.size());
  const int bytes = WideCharToMultiByte(utf8_page, 0, wide.data(), size, nullptr, 0, nullptr, nullptr);
  std::string utf8(static_cast<std::size_t>(bytes), '\0');
  WideCharToMultiByte(utf8_page, 0, wide.data(), size, utf8.data(), bytes, nullptr, nullptr);
  return utf8;
}

}  // namespace detail

/// The path that a UTF-8 text names. The constructor of std::filesystem::path would read the text in the system's code
/// page. What is not UTF-8 becomes U+FFFD.
inline std::filesystem::path path_of(std::string_view text) { return detail::wide_text(text); }

#else

/// The path that a UTF-8 text names.
inline std::filesystem::path path_of(std::string_view text) { return text; }

#endif

}}
