// The oracles of chat templates in tests/fixtures/templates.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "support/paths.hpp"

namespace slm::testing {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson template_cases(const std::string& file) {
  std::ifstream in(fixture("templates/" + file));
  return OrderedJson::parse(in);
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Cases of micro.json about what no known template uses, and slm leaves out.
inline bool not_offered(std::string_view name) {
  static constexpr std::array<std::string_view, 5> names{"self-block", "f-wordwrap", "f-striptags-urlencode",
                                                         "f-filesizeformat", "f-xmlattr"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A published template, which is not in the repository; empty when absent.
inline std::filesystem::path published_template(const std::string& file) { return test_data("chat_templates/" + file); }

/// The variables that transformers gives a template for a case.
inline std::string variables_of(const OrderedJson& example) {
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& given : example["messages"]) {
    OrderedJson message = OrderedJson::object();
    for (const auto& [key, value] : given.items()) {
      if (!value.is_null()) message[key] = value;
    }
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      if (!message.contains(name)) continue;
      const OrderedJson reasoning = message[name];
      message["reasoning_content"] = reasoning;
      if (!message.contains("thinking")) message["thinking"] = reasoning;
      break;
    }
    messages.push_back(message);
  }
  OrderedJson variables{{"messages", messages}, {"tools", nullptr}, {"documents", nullptr}};
  if (example.contains("tools")) variables["tools"] = example["tools"];
  for (const char* name : {"add_generation_prompt", "bos_token", "eos_token"}) variables[name] = example[name];
  if (example.contains("kwargs")) {
    for (const auto& [key, value] : example["kwargs"].items()) variables[key] = value;
  }
  return variables.dump();
}

}  // namespace slm::testing
