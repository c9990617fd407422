// Checked standard input and output, and files.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace cli {

using OrderedJson = nlohmann::ordered_json;

/// Writes to standard output; throws slm::Error on failure, such as a full disk.
void print(std::string_view text);
/// Prints one JSON value on one line. Bytes that are not UTF-8, as in folder names, become U+FFFD.
void print_json(const OrderedJson& json);
/// Appends a JSON list. Nine significant digits represent each float exactly. NaN and infinity become null.
void append_numbers(std::string& out, std::span<const float> values);

// The following functions accept pipes. Endless input such as /dev/zero is rejected at a size limit.

/// Reads all of standard input.
std::string read_standard_input();
/// Reads a whole file.
std::string read_file(const std::string& path);
/// Reads a whole file; throws slm::Error unless it is UTF-8.
std::string read_text(const std::string& path);

}  // namespace cli
