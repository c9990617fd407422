#include "bench/command/report.hpp"

#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/io/json.hpp"
#include "slm/io/write_file.hpp"

namespace slm::bench {

namespace {

/// One object of a report. Every error names the field.
class ReportFields {
 public:
  ReportFields(const Json& object, std::string place, const std::string& file)
      : object_(object), place_(std::move(place)), file_(file) {
    if (!object.is_object()) throw bad("", "an object", object);
  }

  const Json& at(const std::string& name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) {
      throw Error("bench.bad-report", text("'", file_, "' has no field '", place_, name, "'"), mend);
    }
    return *found;
  }

  const Json& list(const std::string& name, std::size_t most) const {
    const Json& field = at(name);
    if (!field.is_array() || field.size() > most) throw bad(name, text("a list of at most ", most), field);
    return field;
  }

  std::string string(const std::string& name) const { return label(at(name), name); }

  /// One printable line.
  std::string label(const Json& field, const std::string& name) const {
    constexpr std::size_t longest = 400;
    if (!field.is_string()) throw bad(name, "a string", field);
    const auto& value = field.get_ref<const std::string&>();
    bool sound = !value.empty() && value.size() <= longest;
    for (const char c : value) sound &= static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    if (!sound) throw bad(name, text("one line of 1 to ", longest, " bytes"), field);
    return value;
  }

  double number(const std::string& name) const {
    const Json& field = at(name);
    if (!field.is_number() || !std::isfinite(field.get<double>())) throw bad(name, "a finite number", field);
    return field.get<double>();
  }

  double from_zero(const std::string& name) const {
    if (number(name) < 0) throw bad(name, "a number of at least 0", at(name));
    return number(name);
  }

  double positive(const std::string& name) const {
    if (number(name) <= 0) throw bad(name, "a number above 0", at(name));
    return number(name);
  }

  std::int64_t integer(const std::string& name, std::int64_t smallest, std::int64_t largest) const {
    const Json& field = at(name);
    const bool fits = field.is_number_integer() &&
                      (!field.is_number_unsigned() || field.get<std::uint64_t>() <= std::uint64_t(largest));
    if (!fits || field.get<std::int64_t>() < smallest || field.get<std::int64_t>() > largest) {
      throw bad(name, text("an integer of ", smallest, "..", largest), field);
    }
    return field.get<std::int64_t>();
  }

 private:
  static constexpr const char* mend = "Measure again with slm bench, or remove the file";

  Error bad(const std::string& name, const std::string& expected, const Json& found) const {
    std::string value = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (value.size() > 60) value = value.substr(0, 60) + "...";
    return Error("bench.bad-report", text("'", file_, "': '", place_, name, "' is ", value, ", expected ", expected),
                 mend);
  }

  const Json& object_;
  std::string place_;
  const std::string& file_;
};

constexpr int most_cores = 1 << 20;
constexpr std::size_t most_results = 10000, most_numbers = 100;
constexpr std::size_t largest_file = std::size_t{64} << 20;

Device device_of(const ReportFields& fields) {
  return {.name = fields.string("name"),
          .architecture = fields.string("architecture"),
          .driver = fields.string("driver"),
          .backend = fields.string("backend"),
          .memory_bytes = fields.integer("memory_bytes", 0, std::numeric_limits<std::int64_t>::max()),
          .cores = static_cast<int>(fields.integer("cores", 1, most_cores)),
          .threads = static_cast<int>(fields.integer("threads", 0, most_cores))};
}

}  // namespace

Report make_report(Device device) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char date[32] = "";
  std::tm utc{};
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&now, &utc));
  return {.version = text(SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH),
          .date = date,
          .device = std::move(device)};
}

Report parse_report(std::string_view source, const std::string& file) {
  if (source.size() > largest_file) {
    throw Error("bench.bad-report",
                text("'", file, "' has ", source.size(), " bytes, a report has at most ", largest_file),
                "Name a file that slm bench wrote with --json");
  }
  const Json json = parse_json_object(source, file);
  const ReportFields fields(json, "", file);
  const auto schema = json.find("schema");
  if (schema == json.end() || *schema != report_schema) {
    throw Error("bench.other-schema",
                text("'", file, "' is ",
                     schema != json.end() && schema->is_string() ? "of schema '" + fields.string("schema") + "'"
                                                                 : std::string("not a report of slm bench"),
                     ", expected schema '", report_schema, "'"),
                "Measure again with this version of slm bench");
  }
  Report report{.version = fields.string("version"),
                .date = fields.string("date"),
                .device = device_of(ReportFields(fields.at("device"), "device.", file))};
  for (const Json& entry : fields.list("results", most_results)) {
    const ReportFields of(entry, text("results[", report.results.size(), "]."), file);
    Result result{.benchmark = of.string("benchmark"),
                  .model = of.string("model"),
                  .format = of.string("format"),
                  .rows = static_cast<int>(of.integer("rows", 1, std::numeric_limits<int>::max())),
                  .seconds = of.positive("seconds"),
                  .bytes = of.from_zero("bytes"),
                  .bandwidth = of.from_zero("bandwidth")};
    const ReportFields numbers(of.at("numbers"), text("results[", report.results.size(), "].numbers."), file);
    if (of.at("numbers").size() > most_numbers) {
      throw Error("bench.bad-report", text("'", file, "' contains a result with more than ", most_numbers, " numbers"),
                  "Name a file that slm bench wrote with --json");
    }
    for (const auto& [name, value] : of.at("numbers").items()) {
      result.numbers[numbers.label(Json(name), name)] = numbers.number(name);
    }
    report.results.push_back(std::move(result));
  }
  for (const Json& failure : fields.list("failures", most_results)) {
    report.failures.push_back(fields.label(failure, "failures"));
  }
  return report;
}

Report read_report(const std::filesystem::path& path) {
  return read_mapped(path, [&](std::string_view text) { return parse_report(text, path.string()); });
}

void write_report(const std::filesystem::path& path, const Report& report) {
  const Device& device = report.device;
  nlohmann::ordered_json json{{"schema", report_schema}, {"version", report.version}, {"date", report.date}};
  json["device"] = {{"name", device.name},       {"architecture", device.architecture}, {"driver", device.driver},
                    {"backend", device.backend}, {"memory_bytes", device.memory_bytes}, {"cores", device.cores},
                    {"threads", device.threads}};
  json["results"] = nlohmann::ordered_json::array();
  for (const Result& result : report.results) {
    json["results"].push_back({{"benchmark", result.benchmark},
                               {"model", result.model},
                               {"format", result.format},
                               {"rows", result.rows},
                               {"seconds", result.seconds},
                               {"bytes", result.bytes},
                               {"bandwidth", result.bandwidth},
                               {"numbers", nlohmann::ordered_json(result.numbers)}});
  }
  json["failures"] = report.failures;
  const std::string content = json_text(json, 1) + "\n";
  parse_report(content, path.string());
  write_text_file(path, content);
}

}  // namespace slm::bench
