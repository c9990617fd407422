// The subjects of `slm bench decode`: products of a token, bytes of a step, random weights of hybrids and mixtures.
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/random_weights.hpp"
#include "bench/device/sequence_bytes.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/io/config_json.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::bench;
using namespace slm::testing;

namespace {

Subject stored(const std::string& file) {
  MeasureOptions options;
  options.files = {fixture("gguf/" + file).string()};
  return subjects_of_files(options).front();
}

/// Elements of the matrices of a file's layers that one token multiplies.
double elements_of_a_token(const Subject& subject) {
  const Checkpoint checkpoint(subject.file);
  double sum = 0;
  checkpoint.names().for_each([&](Role role, int, const auto& weights, const auto&) {
    const bool product = (is_linear(role) && role != Role::head) || role == Role::router || role == Role::shared_gate;
    double elements = 0;
    for (const TensorName& weight : weights)
      elements += product ? double(checkpoint.tensor(weight.name, weight.shape).elements()) : 0;
    const MixtureConfig& mixture = subject.shape.mixture;
    const bool chosen = role == Role::experts_up || role == Role::experts_down;
    sum += chosen ? elements / mixture.experts * mixture.chosen : elements;
  });
  return sum;
}

}  // namespace

TEST_CASE("the products of a token are those of its layers and of the experts that it chooses") {
  for (const std::string file : {"llama-mha3h.gguf", "gpt2.gguf", "lfm2.gguf", "qwen35.gguf", "granitehybrid-moe.gguf",
                                 "nemotron-h.gguf", "olmoe.gguf", "qwen3moe.gguf", "qwen2moe.gguf", "lfm2moe.gguf"}) {
    INFO(file);
    const Subject subject = stored(file);
    CHECK(subject.layer_products() == elements_of_a_token(subject));
  }
}

TEST_CASE("a step moves the keys and values of the layers with attention, and the states before and after its rows") {
  const auto bytes = [](const std::string& file, int positions, int rows) {
    const Subject subject = stored(file);
    return sequence_bytes({subject.shape, subject.settings, KvFormat::f32}, positions, rows);
  };
  const double attention = 2 * 2 * 16 * 4;               // keys and values of one layer, two heads of 16 numbers
  const double states = 4 * (3 * 64 + 4 * 8 * 8) * 4.0;  // four layers: three columns of 64 channels, four heads
  CHECK(bytes("qwen35.gguf", 100, 1) == 100 * attention + 2 * states);
  CHECK(bytes("qwen35.gguf", 100, 5) == 100 * attention + 6 * states);
  CHECK(bytes("qwen3moe.gguf", 100, 5) == 100 * 2 * attention);
  const Subject windowed = stored("phi3-swa7.gguf");
  REQUIRE(windowed.settings.window == 7);
  CHECK(bytes("phi3-swa7.gguf", 100, 1) == bytes("phi3-swa7.gguf", 7, 1));
}

TEST_CASE("random weights of hybrids and mixtures load, in bf16 and in four bits") {
  ModelConfig hybrid = qwen3_5(4, 256, 384, 2, 1, 16), convolution = lfm2_1_2b(), mixture = olmoe_1b_7b;
  hybrid.vocab = convolution.vocab = mixture.vocab = 512;
  hybrid.head_dim = 128;
  convolution.hidden = convolution.mixer.head_dim = 256;
  convolution.ffn = 384;
  convolution.heads = convolution.kv_heads = 4;
  mixture.layers = 2;
  mixture.hidden = mixture.ffn = mixture.mixture.ffn = 256;
  mixture.heads = mixture.kv_heads = 2;
  const std::pair<ModelConfig, const Family*> shapes[] = {
      {hybrid, &families::qwen3_5}, {convolution, &families::lfm2}, {mixture, &families::olmoe}};
  const backend::Cpu device{1};
  for (const auto& [shape, family] : shapes) {
    for (const std::string format : {"bf16", "w4a16"}) {
      INFO(family->model_type << " " << format);
      const Subject subject{family->architecture.data(), format, shape, family, {.tied_embeddings = true}};
      const RandomCheckpoint files(subject, 64, true);
      const Dynamic config{shape};
      std::optional<AnyModel> model;
      if (subject.int4()) {
        model.emplace(Model<Dynamic, AwqInt4<>, backend::Cpu>(config, files.checkpoint(), device));
      } else {
        model.emplace(Model<Dynamic, Bf16, backend::Cpu>(config, files.checkpoint(), device));
      }
      Session session(*model);
      const std::vector<Token> tokens{1, 2, 3};
      CHECK(session.forward(tokens, 1).extent(1) == shape.vocab);
      const double layers = subject.layer_products() * (subject.int4() ? 0.53 : 2), head = 2.0 * 512 * shape.hidden;
      CHECK(double(model->info().step_bytes) == Approx(layers + head).epsilon(0.1));
    }
  }
}
