#include "bench/command/plots.hpp"

#include "bench/command/child.hpp"
#include "slm/core/error.hpp"
#include "tools/cli/data_path.hpp"

namespace slm::bench {

Pictures draw(const Json& request) {
  constexpr double patience = 120;  // seconds; on its first use, matplotlib scans all fonts
  try {
    Child child({"python3", "-B", cli::data_path("bench/command/plots.py")}, {}, "/dev/null");
    const std::string line = request.dump(-1, ' ', true, Json::error_handler_t::replace);
    const Json answer = parse_json_object(child.ask(line, patience), "plots.py");
    if (answer.contains("error")) return {.trouble = "no pictures: " + answer.at("error").get<std::string>()};
    return {.files = answer.at("pictures").get<std::map<std::string, std::string>>()};
  } catch (const Error& error) {
    return {.trouble = text("no pictures: ", error.what())};
  }
}

}  // namespace slm::bench
