// SmolLM2-135M-Instruct from its GGUF file (Q4_1 and Q8_0) against the results of transformers for the same weights,
// dequantized; and folders of these weights in F32 and BF16. Skipped if the file is not in build/models.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "slm/decode/perplexity.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/speculative.hpp"
#include "slm/text/chat.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/real_model.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr const char* file_name = "SmolLM2-135M-Instruct.Q4_1.gguf";

const std::set<std::string> greedy_cases{"cpp", "chat-default", "unicode"};

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
    check_last_logits(load(path, backend::Cpu{}, {.weights = weights}), read_golden_cases("smollm2"), margins);
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
  check_last_logits(model, read_golden_cases("smollm2"), {1e-4, 2.5, 1e-4});
  check_greedy_texts(model, read_golden_cases("smollm2"), greedy_cases);
}

TEST_CASE("a real model's folder in BF16 gives the golden logits and greedy texts") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_bf16.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden logits");
  const TemporaryFolder folder;
  write_folder<bfloat16_t>(path, folder.path());
  const AnyModel model = load(folder.path(), backend::Cpu{});
  check_last_logits(model, read_golden_cases("smollm2", "bf16"), {1e-4, 2.5, 1e-4});
  check_greedy_texts(model, read_golden_cases("smollm2", "bf16"), greedy_cases);
}

TEST_CASE("a real model's GGUF file gives the greedy texts of its dequantized weights, plainly and speculatively") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden texts");
  AnyModel model = load(path, backend::Cpu{});
  CHECK(model.info().end_tokens == std::vector<Token>{2, 0});
  check_greedy_texts(model, read_golden_cases("smollm2"), greedy_cases);
}

TEST_CASE("a real model's GGUF file renders conversations as its chat template does") {
  const auto path = built_model(file_name);
  const auto golden = test_data("smollm2/golden_f32.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "its golden conversations");
  const Tokenizer tokenizer = Tokenizer::from(path);
  const ChatTemplate form = ChatTemplate::from(path);
  int conversations = 0;
  for (const Json& entry : read_golden_cases("smollm2")) {
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
