// Standard output and input, and files, checked.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace cli {

using OrderedJson = nlohmann::ordered_json;

/// Writes to standard output; throws slm::Error when that fails, as on a full disk.
void print(std::string_view text);
/// One JSON value on one line.
void print_json(const OrderedJson& json);

/// The whole of standard input.
std::string read_standard_input();
/// The whole of a file.
std::string read_file(const std::string& path);

}  // namespace cli
