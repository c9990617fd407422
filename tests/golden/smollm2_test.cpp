// SmolLM2-135M-Instruct from its GGUF file (Q4_1 and Q8_0) against the results of transformers for the same weights,
// dequantized; and folders of these weights in F32 and BF16. Skipped if the file is not in build/models.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <vector>

#include "slm/decode/perplexity.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/speculative.hpp"
#include "slm/text/chat.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr const char* file_name = "SmolLM2-135M-Instruct.Q4_1.gguf";

Json read_golden_cases(const std::string& type = "f32") {
  return Json::parse(std::ifstream(test_data("smollm2/golden_" + type + ".json"))).at("cases");
}

/// Tolerances of logits against the golden ones: the largest difference, the sum, and the relative sum of squares.
struct Margins {
  double logit, sum, squares;
};

/// The logits of each case's last token.
void check_last_logits(const AnyModel& model, const Json& cases, const Margins& margins) {
  Session session(model);
  for (const Json& entry : cases) {
    CAPTURE(entry.at("name").get<std::string>(), margins.logit);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    session.truncate(0);
    const View<const float, 2> logits = session.forward(ids, 1);
    const float* row = logits.row(0);
    const Json& last = entry.at("last");
    for (const Json& top : last.at("top")) {
      CHECK(row[top[0].get<int>()] == Approx(top[1].get<double>()).margin(margins.logit).epsilon(0));
    }
    double sum = 0, squares = 0;
    std::vector<double> with_signs(last.at("signed").size());
    for (std::uint64_t token = 0; token < 49152; ++token) {
      const double logit = double{row[token]};
      sum += logit;
      squares += logit * logit;
      for (std::size_t k = 0; k < with_signs.size(); ++k) {
        with_signs[k] += (token * 2654435761u) >> (20 + k) & 1 ? -logit : logit;
      }
    }
    CHECK(sum == Approx(last.at("sum").get<double>()).margin(margins.sum).epsilon(0));
    CHECK(squares == Approx(last.at("sum_squares").get<double>()).epsilon(margins.squares));
    for (std::size_t k = 0; k < with_signs.size(); ++k) {
      CHECK(with_signs[k] == Approx(last.at("signed")[k].get<double>()).margin(250 * margins.logit).epsilon(0));
    }
  }
}

/// Greedy texts of some cases, plainly and speculatively.
void check_greedy_texts(const AnyModel& model, const Json& cases) {
  const Sampling sampling{.max_new_tokens = 64, .temperature = 0.0f, .ignore_end_tokens = true};
  AutoregressiveDecoder plain{model};
  SpeculativeDecoder speculative{Lookup{}, model, {.draft_tokens = 4}};
  for (const Json& entry : cases) {
    const std::string name = entry.at("name");
    if (name != "cpp" && name != "chat-default" && name != "unicode") continue;
    CAPTURE(name);
    const auto ids = entry.at("ids").get<std::vector<Token>>();
    const auto generate = [&](auto& decoder) {
      std::vector<Token> made;
      decoder.generate(std::vector<Token>(ids), sampling, [&](Token token) { made.push_back(token); });
      return made;
    };
    const auto expected = entry.at("greedy").at("ids").get<std::vector<Token>>();
    CHECK(generate(plain) == expected);
    CHECK(generate(speculative) == expected);
  }
}

/// The weights of a GGUF file, dequantized and rounded to Element, as a Hugging Face folder without a tokenizer.
template <class Element>
void write_folder(const std::filesystem::path& gguf, const std::filesystem::path& folder) {
  constexpr DType type = sizeof(Element) == 4 ? DType::f32 : DType::bf16;
  const Checkpoint source(gguf);
  const ModelSettings& settings = source.settings();
  const std::vector<TensorName> names = source.names().all(), written = TensorNames(source.config(), settings).all();
  std::vector<std::vector<Element>> data;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Tensor& tensor = source.tensor(names[i].name, names[i].shape);
    auto& values = data.emplace_back(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    tensors.push_back({written.at(i).name, type, tensor.shape, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(Element)});
  }
  write_safetensors(folder / "model.safetensors", tensors);
  Json config = config_json(source.config(), settings.tied_embeddings, settings.context);
  config["rope_theta"] = settings.rope_theta;
  config["rms_norm_eps"] = settings.norm_epsilon;
  std::ofstream(folder / "config.json") << config;
}

}  // namespace

TEST_CASE("a real model's GGUF file gives the logits of its dequantized weights") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden logits");
  // The blocks' kernels round activations to 16 bits, which may change logits (here up to 33) by 2e-4 of the largest,
  // all in one direction. Blocks dequantized to fp32 have the results of fp32.
  const auto check = [&](WeightType weights, const Margins& margins) {
    check_last_logits(load(path, backend::Cpu{}, {.weights = weights}), read_golden_cases(), margins);
  };
  check(WeightType::as_stored, {6.6e-3, 6.6e-3 * 49152, 1e-3});
  check(WeightType::f32, {2e-4, 2.5, 1e-4});
}

TEST_CASE("a real model's folder in F32 gives the golden logits and greedy texts") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden logits");
  const TemporaryFolder folder;
  write_folder<float>(path, folder.path());
  const AnyModel model = load(folder.path(), backend::Cpu{});
  check_last_logits(model, read_golden_cases(), {1e-4, 2.5, 1e-4});
  check_greedy_texts(model, read_golden_cases());
}

TEST_CASE("a real model's folder in BF16 gives the golden logits and greedy texts") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_bf16.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden logits");
  const TemporaryFolder folder;
  write_folder<bfloat16_t>(path, folder.path());
  const AnyModel model = load(folder.path(), backend::Cpu{});
  check_last_logits(model, read_golden_cases("bf16"), {1e-4, 2.5, 1e-4});
  check_greedy_texts(model, read_golden_cases("bf16"));
}

TEST_CASE("a real model's GGUF file gives the greedy texts of its dequantized weights, plainly and speculatively") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden texts");
  AnyModel model = load(path, backend::Cpu{});
  CHECK(model.info().end_tokens == std::vector<Token>{2, 0});
  check_greedy_texts(model, read_golden_cases());
}

TEST_CASE("a real model's GGUF file renders conversations as its chat template does") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden conversations");
  const Tokenizer tokenizer = Tokenizer::from(path);
  const ChatTemplate form = ChatTemplate::from(path);
  int conversations = 0;
  for (const Json& entry : read_golden_cases()) {
    if (!entry.contains("messages")) {
      CHECK((!entry.contains("text") ||
             tokenizer.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<std::vector<Token>>()));
      continue;
    }
    std::vector<ChatMessage> messages;
    for (const Json& message : entry.at("messages")) messages.push_back({message.at("role"), message.at("content")});
    CHECK(form.render(messages).text == entry.at("rendered").get<std::string>());
    CHECK(form.encode(tokenizer, messages) == entry.at("ids").get<std::vector<Token>>());
    ++conversations;
  }
  CHECK(conversations == 2);
}

TEST_CASE("a real model's GGUF file has the perplexity of its dequantized weights") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/perplexity_f32.json");
  const auto text = test_data("text_wikitext2/valid.txt");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its perplexity");
  SLM_SKIP_WITHOUT(text, "WikiText-2");
  const Json expected = Json::parse(std::ifstream(golden));
  const MappedFile file(text);
  const std::string_view all{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  const std::vector<Token> tokens = Tokenizer::from(path).encode(all.substr(0, expected.at("text").at("bytes")));
  CHECK(static_cast<int>(tokens.size()) == expected.at("text").at("tokens").get<int>());
  AnyModel model = load(path, backend::Cpu{});
  const Json& result = expected.at("results")[0];
  const Perplexity found = perplexity(model, tokens, {.window = result.at("window")});
  CHECK(found.tokens == result.at("scored_tokens").get<std::int64_t>());
  CHECK(found.mean() == Approx(result.at("mean_negative_log_likelihood").get<double>()).margin(1e-5).epsilon(0));
}
