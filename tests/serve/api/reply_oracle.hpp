// Answers of APIs with named events: the oracle's examples, and the comparison with them.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "serve/api/calling_server.hpp"
#include "slm/io/json.hpp"
#include "support/paths.hpp"

namespace serve::test {

inline slm::Json oracle_examples() {
  std::ifstream file(slm::testing::source_path("tests/fixtures/tools/api.json"));
  return slm::Json::parse(file);
}

/// The text that a model writes for an example.
inline std::string model_text(const slm::Json& parsed) {
  std::string text;
  if (parsed["reasoning"] != "") text = "<think>\n" + parsed["reasoning"].get<std::string>();
  if (parsed["reasoning"] != "" && parsed["content"] != "") text += "\n</think>\n\n";
  text += parsed["content"];
  if (parsed["stop_string"].is_string()) text += parsed["stop_string"];
  for (const slm::Json& call : parsed["calls"]) {
    text += (text.empty() ? "" : "\n") + call_text(call["name"], call["arguments"].dump());
  }
  return text;
}

/// Compares an answer with an expected one, where "*NAME" stands for one text, and numbers of tokens are not compared.
/// Further members are allowed; null, an empty text and absence are the same. Returns the places that differ.
class Matching {
 public:
  std::string operator()(const slm::Json& expected, const slm::Json& found, const std::string& place = "") {
    if (place.ends_with("_tokens") || expected == "#") return found.is_number() ? "" : place + " ";
    if (expected.is_null() || expected == "") return found.is_null() || found == "" ? "" : place + " ";
    if (expected.is_object()) {
      std::string faults;
      for (const auto& [name, value] : expected.items()) {
        faults +=
            (*this)(value, found.is_object() && found.contains(name) ? found[name] : slm::Json(), place + "/" + name);
      }
      return faults;
    }
    if (expected.is_array()) {
      if (!found.is_array() || found.size() != expected.size()) return place + " (size) ";
      std::string faults;
      for (std::size_t i = 0; i < found.size(); ++i) {
        faults += (*this)(expected[i], found[i], place + "/" + std::to_string(i));
      }
      return faults;
    }
    if (!expected.is_string()) return expected == found ? "" : place + " ";
    if (!found.is_string()) return place + " ";
    const std::string wanted = expected, text = found;
    if (wanted.starts_with('*')) {
      const auto [known, is_new] = bound_.emplace(wanted, text);
      return !text.empty() && known->second == text ? "" : place + " ";
    }
    const slm::Json object = slm::Json::parse(wanted, nullptr, false);
    if (object.is_object()) return object == slm::Json::parse(text, nullptr, false) ? "" : place + " ";
    return wanted == text ? "" : place + " ";
  }

 private:
  std::map<std::string, std::string> bound_;
};

/// Joins neighbouring deltas of one place: the strings at `path` of events whose other members are equal.
inline std::vector<slm::Json> joined(const std::vector<slm::Json>& events, const slm::Json::json_pointer& path) {
  std::vector<slm::Json> all;
  for (slm::Json event : events) {
    event.erase("sequence_number");
    if (!all.empty() && event.contains(path) && event[path].is_string()) {
      slm::Json last = all.back(), now = event;
      if (last.contains(path)) last[path] = now[path] = "";
      if (last == now) {
        all.back()[path] = all.back()[path].get<std::string>() + event[path].get<std::string>();
        continue;
      }
    }
    all.push_back(std::move(event));
  }
  return all;
}

}  // namespace serve::test
