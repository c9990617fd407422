// An agent without a server: the model calls two functions of this program until it can answer.
//  example-agent <model> <question> [<template>]
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <slm/chat.hpp>

std::string add(std::string_view arguments) {
  const auto given = nlohmann::json::parse(arguments);
  return std::to_string(given.value("a", 0.0) + given.value("b", 0.0));
}

std::string now(std::string_view) { return std::to_string(std::time(nullptr)) + " seconds since 1970"; }

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 4) throw slm::Error("usage: agent <model> <question> [<template>]");
  slm::SpeculativeDecoder decoder{slm::Drafter{slm::ForcedText{}, slm::Lookup{}},
                                  slm::load(argv[1], slm::DefaultBackend{})};
  slm::Chat chat{decoder, slm::Tokenizer::from(argv[1]), slm::ChatTemplate::from(argv[1], argc == 4 ? argv[3] : "")};
  chat.settings().sampling = {.max_new_tokens = 256, .temperature = 0};
  chat.settings().tool_choice = slm::ToolChoice::required;  // the model looks something up before it answers
  chat.settings().most_answers = 3;
  chat.settings().tools = {{"add", "Adds two numbers.",
                            R"({"$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}}, "type": "object",
       "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}, "required": ["a", "b"],
       "additionalProperties": false})",
                            add},
                           {"now", "The time.", "", now}};

  const slm::ChatAnswer answer = chat.ask(argv[2]);
  for (const slm::ChatTurn& turn : chat.turns()) {
    std::cout << turn.role << ": " << turn.content << '\n';
    for (const slm::ToolCall& call : turn.calls) std::cout << "  calls " << call.name << ' ' << call.arguments << '\n';
  }
  if (!answer.is_complete) std::cout << "(not complete)\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
