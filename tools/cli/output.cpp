#include "tools/cli/output.hpp"

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/json.hpp"
#include "slm/text/utf8.hpp"
#include "tools/cli/system.hpp"

namespace cli {

void print(std::string_view text) {
  std::cout << text << std::flush;
  if (!std::cout) {
    throw slm::Error("cli.output-failed", "standard output could not be written",
                     "Check for a full disk or a closed pipe");
  }
}

void print_json(const OrderedJson& json) { print(slm::json_text(json) + "\n"); }

void append_numbers(std::string& out, std::span<const float> values) {
  out += "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ",";
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(values[i]));
    out += std::isfinite(values[i]) ? digits : "null";
  }
  out += "]";
}

namespace {

constexpr std::size_t longest_text = std::size_t{64} << 20;

/// Reads all bytes of an open file; returns false if reading fails, as it does for a folder.
bool read_all(std::FILE* file, const std::string& name, std::string& out) {
  char piece[1 << 16];
  while (const std::size_t count = std::fread(piece, 1, sizeof piece, file)) {
    if (out.size() + count > longest_text) {
      throw slm::Error("cli.long-text", slm::text(name, " holds more than ", longest_text >> 20, " MiB"),
                       "Use a shorter text");
    }
    out.append(piece, count);
  }
  return std::ferror(file) == 0;
}

}  // namespace

std::string read_standard_input() {
  std::string text;
  if (!read_all(stdin, "standard input", text)) {
    throw slm::Error("cli.input-failed", "standard input could not be read", "Pipe a text or name a file");
  }
  return text;
}

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(open_to_read(slm::path_of(path)), &std::fclose);
  std::string text;
  if (!file || !read_all(file.get(), slm::text("'", path, "'"), text)) {
    throw slm::Error("cli.unreadable-file", slm::text("'", path, "' could not be read"),
                     "Check the path and its permissions");
  }
  return text;
}

std::string read_text(const std::string& path) {
  std::string text = read_file(path);
  if (const std::size_t good = slm::utf8::valid_prefix(text); good != text.size()) {
    throw slm::Error("cli.not-utf8", slm::text("'", path, "' is not UTF-8: byte ", good, " is not part of a character"),
                     "Convert the text to UTF-8, or use another file");
  }
  return text;
}

}  // namespace cli
