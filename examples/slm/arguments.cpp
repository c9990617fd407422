// Argument parsing that CLI11 lacks: 64-bit numbers, lists of ids, and suggestions for unknown commands.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "cli.hpp"

namespace cli {

namespace {

/// Edit distance: letters to change, add or remove.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = corner + (from[i] != to[j]);
      corner = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

CLI::Option& add_whole_number(CLI::App& command, const std::string& name, std::uint64_t& value,
                              const std::string& description) {
  const auto read = [&value](const std::string& word) {
    const char* const end = word.data() + word.size();
    const auto [stop, fault] = std::from_chars(word.data(), end, value);
    if (fault != std::errc{} || stop != end) {
      throw CLI::ValidationError(slm::quote(word), "expected a number of 0..18446744073709551615");
    }
  };
  return *command.add_option_function<std::string>(name, read, description)
              ->default_str(std::to_string(value))
              ->type_name("UINT");
}

bool parse_ids(std::string_view text, std::vector<slm::Token>& ids) {
  ids.clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;; ++at) {
    const auto [stop, fault] = std::from_chars(at, end, ids.emplace_back());
    if (fault != std::errc{}) return false;
    if (stop == end) return true;
    if (*stop != ',') return false;
    at = stop;
  }
}

std::optional<slm::Error> unknown_command(const CLI::App& program, std::span<const std::string> words) {
  const CLI::App* at = &program;
  std::string path = program.get_name();
  for (const std::string_view word : words) {
    const auto is_named = [](const CLI::App* command) {
      return !command->get_name().empty();
    };  // option groups have no name
    const auto commands = at->get_subcommands(is_named);
    if (commands.empty() || word.starts_with('-')) return std::nullopt;
    const auto closeness = [&](const CLI::App* command) { return distance(word, command->get_name()); };
    const CLI::App* nearest = *std::min_element(
        commands.begin(), commands.end(), [&](auto* one, auto* other) { return closeness(one) < closeness(other); });
    if (nearest->get_name() != word) {
      return slm::Error(
          "cli.unknown-command",
          slm::text(path, " has no command ", slm::quote(word), "; the nearest is '", nearest->get_name(), "'"),
          slm::text(path, " --help lists the commands"));
    }
    at = nearest;
    path += " " + nearest->get_name();
  }
  return std::nullopt;
}

}  // namespace cli
