// Standard output and input, and files, checked.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace cli {

using OrderedJson = nlohmann::ordered_json;

/// Writes to standard output; throws slm::Error when that fails, as on a full disk.
void print(std::string_view text);
/// One JSON value on one line. Bytes that are not UTF-8, as in the name of a folder, come out as U+FFFD.
void print_json(const OrderedJson& json);
/// Adds a JSON list. Nine significant digits give back the same float. JSON has no word for NaN and infinity: null.
void append_numbers(std::string& out, std::span<const float> values);

// Texts may come from pipes. Of one that does not end, as /dev/zero, no more is read than any text has.

/// The whole of standard input.
std::string read_standard_input();
/// The whole of a file.
std::string read_file(const std::string& path);
/// The same; throws slm::Error when it is not UTF-8.
std::string read_text(const std::string& path);

}  // namespace cli
