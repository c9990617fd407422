#include "bench/command/json_lines.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace slm::bench {

namespace {

constexpr std::size_t most_bytes = std::size_t{64} << 20, longest_line = std::size_t{1} << 20;

Error unreadable(const std::filesystem::path& path, std::string_view reason) {
  return Error("bench.unreadable-lines", text("cannot read '", path.string(), "': ", reason),
               "Check the path, or download the file again");
}

/// The whole file. zlib reads a file without a gzip header unchanged.
std::string inflate_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) throw unreadable(path, "it is not a regular file");
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), &gzclose);
  if (!file) throw unreadable(path, std::strerror(errno));
  std::string content;
  std::string piece(std::size_t{1} << 16, '\0');
  int count = 0;
  while ((count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()))) > 0) {
    if (content.size() + static_cast<std::size_t>(count) > most_bytes) {
      throw Error("bench.too-large", text("'", path.string(), "' contains more than ", most_bytes >> 20, " MiB"),
                  "Check that this is the intended file");
    }
    content.append(piece, 0, static_cast<std::size_t>(count));
  }
  // The last part of a truncated file inflates without an error. Only the stream's state reports it.
  int state = Z_OK;
  const std::string reason = gzerror(file.get(), &state);
  if (count < 0 || state != Z_OK) throw unreadable(path, reason);
  return content;
}

}  // namespace

const std::string& JsonLine::string(const char* name) const {
  const auto field = object.find(name);
  if (field == object.end()) {
    throw Error("bench.missing-field", text("'", place, "' has no field '", name, "'"),
                "Repair the line, or download the file again");
  }
  if (!field->is_string()) {
    throw Error("bench.wrong-type",
                text("'", place, "' holds ", field->type_name(), " as '", name, "', expected a string"),
                "Repair the line, or download the file again");
  }
  return field->get_ref<const std::string&>();
}

void read_json_lines(const std::filesystem::path& path, const std::function<void(const JsonLine&)>& visit) {
  const std::string content = inflate_file(path);
  std::string_view rest = content;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = text(path.string(), ":", number);
    if (line.size() > longest_line) {
      throw Error("bench.too-large", text("'", place, "' has ", line.size(), " bytes, more than 1 MiB"),
                  "Check that this is the intended file");
    }
    visit({parse_json_object(line, place), place});
  }
}

}  // namespace slm::bench
