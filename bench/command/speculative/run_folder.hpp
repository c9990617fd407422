// The folder of a run: its settings, and every measurement as soon as it ended. A stopped run continues from them.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/command/speculative/row.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/io/write_file.hpp"

namespace slm::bench::speculative {

/// The first difference of two descriptions, such as "target.weights is X, this run has Y"; empty: they are equal.
inline std::optional<std::string> first_difference(const Json& found, const Json& wanted,
                                                   const std::string& name = "") {
  if (found == wanted) return std::nullopt;
  if (found.is_object() && wanted.is_object()) {
    std::set<std::string> fields;
    for (const auto& item : found.items()) fields.insert(item.key());
    for (const auto& item : wanted.items()) fields.insert(item.key());
    for (const std::string& field : fields) {
      const Json there = found.value(field, Json()), here = wanted.value(field, Json());
      if (const auto inner = first_difference(there, here, name.empty() ? field : name + "." + field)) return inner;
    }
  }
  if (found.is_array() && wanted.is_array() && found.size() == wanted.size()) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (const auto inner = first_difference(found[i], wanted[i], text(name, "[", i, "]"))) return inner;
    }
  }
  const auto shown = [](const Json& value) {
    const std::string whole = json_text(value);
    return whole.size() > 80 ? whole.substr(0, 77) + "..." : whole;
  };
  return text("'", name, "' is ", shown(found), ", this run has ", shown(wanted));
}

class RunFolder {
 public:
  /// run: all settings that determine the results. made: values that may differ when the run continues, such as the
  /// date. Throws bench.not-a-run, bench.other-run, bench.in-use, bench.broken-results.
  RunFolder(std::filesystem::path folder, const Json& run, const Json& made) : folder_(std::move(folder)) {
    namespace fs = std::filesystem;
    std::error_code failure;
    fs::create_directories(folder_, failure);
    if (!fs::is_directory(folder_)) throw unwritable(folder_, failure.message());
    const fs::path manifest = folder_ / "manifest.json";
    if (fs::exists(manifest)) {
      const Json found = read_json_object(manifest);
      if (const auto difference = first_difference(found.value("run", Json()), run)) {
        throw Error("bench.other-run", text("'", folder_.string(), "' holds another run: ", *difference),
                    "Repeat the same options to continue it, or use another folder with --out");
      }
      made_ = found.value("made", Json());
    } else {
      for (const auto& entry : fs::directory_iterator(folder_, failure)) {
        if (entry.path().filename() == "manifest.json.partial") continue;
        throw Error("bench.not-a-run", text("'", folder_.string(), "' contains files, but no manifest.json of a run"),
                    "Use an empty or new folder with --out");
      }
      made_ = made;
      write_text_file(manifest, json_text(Json{{"run", run}, {"made", made}}, 1) + "\n");
    }
    open();
  }

  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder() { ::close(file_); }

  const std::filesystem::path& path() const { return folder_; }
  /// `made` from the start of the run.
  const Json& made() const { return made_; }
  const std::vector<Row>& rows() const { return rows_; }
  /// The number of rows of one engine.
  std::size_t rows_of(std::string_view engine) const {
    const auto its = [&](const Row& row) { return row.key.engine == engine; };
    return static_cast<std::size_t>(std::count_if(rows_.begin(), rows_.end(), its));
  }
  bool has(const Key& key) const { return places_.contains(key); }
  const Row& row(const Key& key) const { return rows_[places_.at(key)]; }

  void append(const Row& row) {
    const std::string line = json_text(to_json(row)) + "\n";
    std::string_view left = line;
    while (!left.empty()) {
      const ssize_t count = ::write(file_, left.data(), left.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw unwritable(results(), std::strerror(errno));
      left.remove_prefix(static_cast<std::size_t>(count));
    }
    keep(row);
  }

 private:
  std::filesystem::path results() const { return folder_ / "results.jsonl"; }

  void open() {
    file_ = ::open(results().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file_ < 0) throw unwritable(results(), std::strerror(errno));
    try {
      if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
        throw Error("bench.in-use", text("another process writes to '", folder_.string(), "'"),
                    "Wait for it, or use another folder with --out");
      }
      read();
    } catch (...) {
      ::close(file_);
      throw;
    }
  }

  /// Reads every row. A truncated last line is removed and measured again.
  void read() {
    std::ifstream stream(results(), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    std::size_t sound = 0, number = 0;
    for (std::size_t begin = 0; begin < content.size(); begin = sound) {
      ++number;
      const std::size_t end = content.find('\n', begin);
      const bool last = end == content.npos || end + 1 == content.size();
      const std::string name = text(results().string(), ", line ", number);
      try {
        if (end == content.npos) throw detail::RowFields::wrong("cut off");
        keep(row_of(parse_json_object(std::string_view{content}.substr(begin, end - begin), name)));
      } catch (const Error& fault) {
        if (last) break;
        throw Error("bench.broken-results", text("'", results().string(), "', line ", number, ": ", fault.what()),
                    "Remove that line to measure it again, or use another folder with --out");
      }
      sound = end + 1;
    }
    if (sound < content.size() && ::ftruncate(file_, static_cast<off_t>(sound)) != 0) {
      throw unwritable(results(), std::strerror(errno));
    }
  }

  void keep(const Row& row) {
    if (!places_.emplace(row.key, rows_.size()).second) {
      throw Error(
          "bench.repeated-row",
          text("the measurement of ", row.key.task, " (", row.key.setup, ", ", row.key.sampling, ", ", row.key.kind,
               ", draft length ", row.key.draft_length, ", repeat ", row.key.repeat, ") exists twice"),
          "Use another folder with --out");
    }
    rows_.push_back(row);
  }

  static Error unwritable(const std::filesystem::path& path, const std::string& reason) {
    return Error("io.unwritable", text("cannot write '", path.string(), "': ", reason),
                 "Check the folder, its permissions and the free space");
  }

  std::filesystem::path folder_;
  Json made_;
  std::vector<Row> rows_;
  std::map<Key, std::size_t> places_;
  int file_ = -1;
};

}  // namespace slm::bench::speculative
