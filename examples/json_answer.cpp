// Constrains an answer to JSON that fits a schema. Text that the schema forces is drafted, so that it costs few steps.
//  example-json_answer <model> <prompt>
#include <iostream>
#include <slm/grammar.hpp>
#include <slm/speculative.hpp>

constexpr const char* schema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "pattern": "^[A-Za-z _]{1,24}$"},
    "count": {"type": "integer", "minimum": 0, "maximum": 9999}
  },
  "required": ["name", "count"],
  "additionalProperties": false
})";

int main(int argc, char** argv) try {
  if (argc != 3) throw slm::Error("usage: json_answer <model> <prompt>");

  const auto tokenizer = slm::Tokenizer::from(argv[1]);
  const auto grammar = slm::Grammar::json_schema(schema, {.compact = true});
  const slm::Request request{.prompt = tokenizer.encode(argv[2]),
                             .sampling = {.max_new_tokens = 80, .temperature = 0},
                             .constraint = slm::constrain(grammar, slm::TokenTrie(tokenizer))};

  slm::SpeculativeDecoder decoder{slm::Drafter{slm::ForcedText{}, slm::Lookup{}},
                                  slm::load(argv[1], slm::DefaultBackend{})};
  slm::TextStream answer{tokenizer, request.prompt, std::cout};
  decoder.generate(request, answer);
  std::cout << '\n';
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
