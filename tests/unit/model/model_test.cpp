#include <array>
#include <catch2/catch.hpp>
#include <cfenv>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/load_definition.hpp"
#include "slm/model/model.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

// compiled once for all tests
extern template AnyModel slm::load<Registry<>>(const std::filesystem::path&, backend::Reference, const LoadOptions&);

namespace {

struct Tiny {
  static constexpr std::string_view name = "Tiny";
  static constexpr ModelConfig value = tiny_shape;
};

const std::vector<Token> prompt{5, 99, 0, 31, 31, 7, 100, 64, 2, 18, 42};

std::vector<float> copy(View<const float, 2> logits) { return {logits.data, logits.data + logits.size()}; }

std::vector<float> logits_of(AnyModel model, int rows) { return copy(Session(std::move(model)).forward(prompt, rows)); }

void change_config(const std::filesystem::path& folder, const char* field, const Json& value) {
  Json config = read_json_object(folder / "config.json");
  config[field] = value;
  std::ofstream(folder / "config.json") << config;
}

/// Supports only one format.
struct OnlyBf16 : backend::Reference {
  static constexpr const char* name = "only-bf16";
  static constexpr std::array kv_formats = {KvFormat::bf16};
};

/// Its steps begin where take() is called.
struct Following : backend::Reference {
  using Take = std::function<void(const StepPlan&)>;
  std::shared_ptr<Take> take = std::make_shared<Take>();
  void on_step(Take its) { *take = std::move(its); }
};

}  // namespace

TEST_CASE("a copy of a device that outlives its model rejects the model's steps, and does not keep the model") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3);
  const Following device;
  const StepPlan nothing{.rows = {}, .sequences = {}, .pages = {}, .outputs = {}, .draws = {}};
  auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  const std::weak_ptr<const Checkpoint> held = checkpoint;
  {
    const Model<Tiny, Fp32, Following> model(Tiny{}, std::move(checkpoint), device);
    CHECK(!held.expired());
    CHECK(error_id([&] { (*device.take)(nothing); }) == "no error");
  }
  CHECK(held.expired());
  CHECK(error_id([&] { (*device.take)(nothing); }) == "ranks.out-of-step");
}

TEST_CASE("a compile-time config and Dynamic are the same model") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3);
  const backend::Reference device;
  const auto fixed = logits_of(Model<Tiny, Fp32, backend::Reference>::load(folder.path(), device), 11);
  CHECK(fixed == logits_of(load(folder.path(), device), 11));
  CHECK(fixed == logits_of(load<Registry<Tiny>>(folder.path(), device, {.only_known = true}), 11));
  CHECK(Model<Tiny, Fp32, backend::Reference>::static_vocab == 101);
  CHECK(Model<Dynamic, Fp32, backend::Reference>::static_vocab == 0);
}

TEST_CASE("a shape outside the registry is rejected on request, and so is another model's folder") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3);
  CHECK_THROWS_WITH(load(folder.path(), backend::Cpu{}, {.only_known = true}),
                    Catch::Contains("config.not-registered"));
  using Wrong = Model<configs::AmdLlama_135M, Fp32, backend::Reference>;
  CHECK_THROWS_WITH(Wrong::load(folder.path()), Catch::Contains("AMD-Llama-135M, differs: layers 2 instead of 12"));
}

TEST_CASE("logits do not depend on the division of tokens among calls, nor on truncated tokens") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 4);
  Session model(load(folder.path(), backend::Reference{}));
  const auto whole = copy(model.forward(prompt, 11));
  CHECK(model.length() == 11);
  const std::size_t vocab = 101;
  for (std::size_t cut = 1; cut < prompt.size(); ++cut) {
    model.truncate(0);
    const std::vector<Token> noise(cut + 3, 77);
    model.forward(noise, 0);
    model.truncate(0);
    model.forward(std::span(prompt).first(cut), 0);
    const auto rest = copy(model.forward(std::span(prompt).subspan(cut), static_cast<int>(prompt.size() - cut)));
    CHECK(std::memcmp(rest.data(), whole.data() + cut * vocab, rest.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("prompts longer than one chunk give the same logits at every chunk boundary") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 5);
  Session model(load(folder.path(), backend::Reference{}));
  std::vector<Token> tokens(backend::Reference::max_rows * 2 + 5);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i * 37 % 101);
  const auto all = copy(model.forward(tokens, static_cast<int>(tokens.size())));
  for (const int rows : {1, 5, 6, 69, 70}) {  // the requested rows end inside, at and across a chunk
    model.truncate(0);
    const auto last = copy(model.forward(tokens, rows));
    CHECK(std::memcmp(last.data(), all.data() + all.size() - last.size(), last.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("weights can be stored in another type than the file's") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 6);
  const backend::Reference device;
  const auto exact = logits_of(load(folder.path(), device), 11);
  for (const WeightType type : {WeightType::bf16, WeightType::f16}) {
    const auto rounded = logits_of(load(folder.path(), device, {.weights = type}), 11);
    CHECK(rounded != exact);
    for (std::size_t i = 0; i < exact.size(); ++i) REQUIRE(std::abs(rounded[i] - exact[i]) < 0.25f);
  }
  const TemporaryFolder narrow;
  write_random_checkpoint<bfloat16_t>(narrow.path(), tiny_shape, 6);
  Session as_stored(load(narrow.path(), device));
  const auto widened = logits_of(load(narrow.path(), device, {.weights = WeightType::f32}), 11);
  CHECK(copy(as_stored.forward(prompt, 11)) == widened);  // widening changes nothing
  CHECK(as_stored.info().step_bytes < load(narrow.path(), device, {.weights = WeightType::f32}).info().step_bytes);
}

TEST_CASE("biases are used if config.json enables them") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 7);
  const auto without = logits_of(load(folder.path(), backend::Reference{}), 11);
  change_config(folder.path(), "attention_bias", true);
  CHECK_THROWS_WITH(load(folder.path(), backend::Reference{}), Catch::Contains("q_proj.bias' [64]"));

  const Safetensors weights(folder.path() / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : weights.tensors) tensors.push_back(tensor);
  const std::vector<float> zeros(256, 0.0f), halves(256, 0.5f);
  const auto add = [&](std::string name, std::int64_t size, const std::vector<float>& values) {
    tensors.push_back({std::move(name),
                       DType::f32,
                       {size},
                       reinterpret_cast<const std::byte*>(values.data()),
                       static_cast<std::size_t>(size) * 4});
  };
  for (const std::vector<float>* values : {&zeros, &halves}) {
    tensors.resize(weights.tensors.size());
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      add(text(layer, "self_attn.q_proj.bias"), 64, *values);
      add(text(layer, "self_attn.k_proj.bias"), 32, *values);
      add(text(layer, "self_attn.v_proj.bias"), 32, *values);
      add(text(layer, "self_attn.o_proj.bias"), 64, *values);
      add(text(layer, "mlp.gate_proj.bias"), 96, *values);
      add(text(layer, "mlp.up_proj.bias"), 96, *values);
      add(text(layer, "mlp.down_proj.bias"), 64, *values);
    }
    const TemporaryFolder biased;
    write_safetensors(biased.path() / "model.safetensors", tensors);
    std::filesystem::copy(folder.path() / "config.json", biased.path() / "config.json");
    change_config(biased.path(), "mlp_bias", true);
    CHECK((logits_of(load(biased.path(), backend::Reference{}), 11) == without) == (values == &zeros));
  }
}

TEST_CASE("a tied table may be stored under either name") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 8, true);
  const auto expected = logits_of(load(folder.path(), backend::Reference{}), 11);
  const Safetensors weights(folder.path() / "model.safetensors");
  std::vector<Tensor> tensors;
  for (auto [name, tensor] : weights.tensors) {
    if (name == "model.embed_tokens.weight") tensor.name = "lm_head.weight";
    tensors.push_back(tensor);
  }
  const TemporaryFolder renamed;
  write_safetensors(renamed.path() / "model.safetensors", tensors);
  std::filesystem::copy(folder.path() / "config.json", renamed.path() / "config.json");
  CHECK(logits_of(load(renamed.path(), backend::Reference{}), 11) == expected);
}

TEST_CASE("requests outside a model's limits are rejected and change nothing") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 9);
  Session model(load(folder.path(), backend::Reference{}, {.context = 12}));
  CHECK(model.info().context == 12);
  model.forward(std::span(prompt).first(8), 1);
  const std::vector<Token> five(5, 1), negative{-1}, beyond{101}, good{1};
  CHECK_THROWS_WITH(model.forward(five, 1), Catch::Contains("batch.context-full") && Catch::Contains("context is 12"));
  CHECK_THROWS_WITH(model.forward(negative, 1), Catch::Contains("token id -1 is outside the vocabulary 0..100"));
  CHECK_THROWS_WITH(model.forward(beyond, 1), Catch::Contains("batch.token-out-of-range"));
  CHECK_THROWS_WITH(model.forward(good, 2), Catch::Contains("batch.rows"));
  CHECK_THROWS_WITH(model.forward(good, -1), Catch::Contains("batch.rows"));
  CHECK_THROWS_WITH(model.truncate(9), Catch::Contains("expected a new length of at most 8 tokens, found 9"));
  CHECK_THROWS_WITH(model.truncate(-1), Catch::Contains("sequence.truncate"));
  CHECK(model.length() == 8);
  CHECK(model.forward(std::span<const Token>{}, 0).size() == 0);
  CHECK_THROWS_WITH(load(folder.path(), backend::Reference{}, {.context = 513}),
                    Catch::Contains("exceeds the limit of config.json, 512"));
}

TEST_CASE("a cache format that a backend does not support is rejected, on loading and for a pool") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 9);
  const AnyModel model = load(folder.path(), OnlyBf16{});
  CHECK(model.pool().format() == KvFormat::bf16);
  CHECK_THROWS_WITH(load(folder.path(), OnlyBf16{}, {.cache_format = KvFormat::int8}),
                    Catch::Contains("only-bf16 does not support KV cache format int8. Use one of: bf16") &&
                        Catch::Contains("[cache.format]"));
  CHECK_THROWS_WITH(model.pool({.format = KvFormat::f32}), Catch::Contains("[cache.format]"));
  const AnyModel plain = load(folder.path(), backend::Reference{}, {.cache_format = KvFormat::int8});
  CHECK(plain.pool().format() == KvFormat::int8);
  CHECK(plain.pool({.format = KvFormat::f32}).format() == KvFormat::f32);
}

TEST_CASE("loading reports its progress, and a model provides the decoder's information") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path(), tiny_shape, 10);
  change_config(folder.path(), "eos_token_id", 2);
  std::vector<double> progress;
  const AnyModel model =
      load(folder.path(), backend::Reference{}, {.progress = [&](double part) { progress.push_back(part); }});
  CHECK(progress == std::vector<double>{0.5, 1.0});
  CHECK(model.info().end_tokens == std::vector<Token>{2});
  CHECK(model.info().vocab == 101);
  CHECK(model.info().tokens().empty());
  const std::int64_t matrices = 2 * (64 * 128 + 64 * 64 + 64 * 192 + 96 * 64) + 101 * 64 + 64;
  CHECK(model.info().step_bytes == 2 * matrices);
}

TEST_CASE("logits do not depend on the rounding mode of the loading and the calling thread") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 9);
  const auto plain = logits_of(load(folder.path(), backend::Reference{}), 11);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    const auto other = logits_of(load(folder.path(), backend::Reference{}), 11);
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(after == mode);
    CHECK(other == plain);
  }
}
