#include "expected.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/grammar.hpp"
#include "slm/speculative.hpp"

namespace {

template <class T, class Compute>
std::size_t results(T* out, std::size_t most, Compute compute) {
  try {
    const std::vector<T> found = compute();
    if (found.size() > most) return 0;
    std::copy(found.begin(), found.end(), out);
    return found.size();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 0;
  }
}

}  // namespace

std::size_t expected_tokens(const char* model, const char* text, std::int32_t* out, std::size_t most) {
  return results(out, most, [&] { return slm::Tokenizer::from(model).encode(text); });
}

std::size_t expected_answer(const char* model, const char* adapter, const char* schema, const std::int32_t* prompt,
                            std::size_t count, float temperature, std::int32_t* out, std::size_t most) {
  return results(out, most, [&] {
    const slm::AnyModel loaded = slm::load(model);
    slm::Request request{.prompt = {prompt, prompt + count},
                         .sampling = {.max_new_tokens = static_cast<int>(most), .temperature = temperature, .seed = 7}};
    if (adapter != nullptr) request.adapter = slm::load_adapter(adapter, loaded);
    if (schema != nullptr) {
      request.constraint =
          slm::constrain(slm::Grammar::json_schema(schema), slm::TokenTrie(slm::Tokenizer::from(model)));
    }
    std::vector<slm::Token> answer;
    slm::AutoregressiveDecoder(loaded).generate(request, [&](slm::Token token) { answer.push_back(token); });
    return answer;
  });
}

std::size_t expected_logits(const char* model, const std::int32_t* tokens, std::size_t count, float* out,
                            std::size_t most) {
  return results(out, most, [&] {
    slm::Session session(slm::load(model));
    const auto row = session.forward({tokens, count}, 1).row(0);
    return std::vector<float>(row, row + session.info().vocab);
  });
}

std::size_t expected_embedding(const char* model, const std::int32_t* tokens, std::size_t count, float* out,
                               std::size_t most) {
  return results(out, most, [&] {
    std::vector<float> embedding;
    const slm::Request request{
        .prompt = {tokens, tokens + count},
        .pooling = slm::Pooling::mean,
        .embedded = [&](std::span<const float> values) { embedding.assign(values.begin(), values.end()); }};
    slm::AutoregressiveDecoder(slm::load(model)).generate(request, [](slm::Token) {});
    return embedding;
  });
}
