#include <catch2/catch.hpp>

#include "slm/config/known_models.hpp"
#include "slm/config/registry.hpp"
#include "slm/config/sizes.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/tensor_names.hpp"

using namespace slm;

namespace {

struct Mine {
  static constexpr std::string_view name = "Mine";
  static constexpr ModelConfig value{
      .layers = 1, .hidden = 8, .ffn = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .vocab = 16};
};

/// Of every tensor that the loader would read.
template <class Model>
std::int64_t parameters(const Family& family = families::llama, bool untied = false) {
  ModelSettings settings;
  if constexpr (requires { Model::tied; }) settings.tied_embeddings = Model::tied && !untied;
  if constexpr (requires { Model::position_rows; }) settings.context = Model::position_rows;
  std::int64_t total = 0;
  for (const TensorName& name : TensorNames(Model::value, settings, family.names).all()) {
    std::int64_t count = 1;
    for (const std::int64_t extent : name.shape) count *= extent;
    total += count;
  }
  return total;
}

}  // namespace

TEST_CASE("a shape finds its config, an unknown one finds none") {
  std::string found;
  CHECK(visit(KnownModels{}, configs::Llama3_8B::value, [&](auto model) { found = model.name; }));
  CHECK(found == "Llama-3-8B");
  CHECK_FALSE(visit(KnownModels{}, Mine::value, [&](auto) { found = "wrong"; }));
  CHECK(visit(Registry<Mine>{}, Mine::value, [&](auto model) { found = model.name; }));
  CHECK(found == "Mine");
}

TEST_CASE("the known shapes have the published numbers of parameters") {
  CHECK(parameters<configs::AmdLlama_135M>() == 134'105'856);
  CHECK(parameters<configs::JackFram_68M>() == 68'030'208);
  CHECK(parameters<configs::JackFram_160M>() == 162'417'408);
  CHECK(parameters<configs::SmolLM2_135M>() == 134'515'008);
  CHECK(parameters<configs::TinyLlama_1B>() == 1'100'048'384);
  CHECK(parameters<configs::Llama32_1B>() == 1'235'814'400);
  CHECK(parameters<configs::Llama2_7B>() == 6'738'415'616);
  CHECK(parameters<configs::CodeLlama_7B>() == 6'738'546'688);
  CHECK(parameters<configs::Llama3_8B>() == 8'030'261'248);
  CHECK(parameters<configs::Llama2_13B>() == 13'015'864'320);
  CHECK(parameters<configs::AmdOlmo_1B>(families::olmo) == 1'176'764'416);
  CHECK(parameters<configs::Olmo_1B_0724>(families::olmo, true) == 1'279'787'008);
  CHECK(parameters<configs::Mpt_1B_RedPajama>(families::mosaic_gpt) == 1'311'442'944);
  CHECK(parameters<configs::Mpt_7B>(families::mpt) == 6'649'286'656);
  CHECK(parameters<configs::Foundry_3B>(families::mpt) == 2'651'837'440);
  CHECK(parameters<configs::Mistral_7B>(families::mistral) == 7'241'732'096);
  CHECK(parameters<configs::Mistral_7B_v03>(families::mistral) == 7'248'023'552);
  CHECK(parameters<configs::Phi_2>(families::phi) == 2'779'683'840);
  CHECK(parameters<configs::Phi3_Mini_4K>(families::phi3) == 3'821'079'552);
  CHECK(parameters<configs::Gpt2_124M>(families::gpt2) == 124'439'808);
  CHECK(parameters<configs::Opt_125M>(families::opt) == 125'239'296);
  CHECK(parameters<configs::Qwen25_05B>(families::qwen2) == 494'032'768);
  CHECK(parameters<configs::Qwen25_15B>(families::qwen2) == 1'543'714'304);
  CHECK(parameters<configs::Qwen3_06B>(families::qwen3) == 596'049'920);
}

TEST_CASE("shapes of every family have the published numbers of parameters") {
  const auto with = [](ModelConfig shape, auto change) {
    change(shape);
    return shape;
  };
  const auto plain = [](ModelConfig& c) { c.norm = NormKind::layer, c.gated = false; };
  const auto classic = [&](ModelConfig& c) {  // biases everywhere and learned positions
    plain(c);
    c.norm_affine = NormAffine::weight_and_bias;
    c.positions = Positions::learned;
    c.attention_bias = AttentionBias::all;
    c.mlp_bias = true;
  };
  constexpr TableSizes tied{.tied = true};

  const ModelConfig olmo = with({16, 2048, 8192, 16, 16, 128, 50304}, [](ModelConfig& c) {
    c.norm = NormKind::layer;
    c.norm_affine = NormAffine::none;
  });
  CHECK(parameter_count(olmo, tied) == 1'176'764'416);
  CHECK(parameter_count(olmo, {}) == 1'279'787'008);
  const ModelConfig mpt_1b = with({24, 2048, 8192, 16, 16, 128, 50432}, [&](ModelConfig& c) {
    plain(c);
    c.qk_norm = QkNorm::whole;
  });
  CHECK(parameter_count(mpt_1b, tied) == 1'311'442'944);
  const ModelConfig mpt_3b = with({32, 2560, 10240, 20, 20, 128, 50368}, classic);
  CHECK(parameter_count(mpt_3b, {.tied = true, .position_rows = 2048}) == 2'651'837'440);
  const ModelConfig phi_2 = with({32, 2560, 10240, 32, 32, 80, 51200}, [&](ModelConfig& c) {
    classic(c);
    c.positions = Positions::rope;
    c.order = BlockOrder::parallel;
    c.head_bias = true;
  });
  CHECK(parameter_count(phi_2, {}) == 2'779'683'840);
  CHECK(parameter_count({32, 3072, 8192, 32, 32, 96, 32064}, {}) == 3'821'079'552);   // Phi-3-mini
  CHECK(parameter_count({32, 4096, 14336, 32, 8, 128, 32768}, {}) == 7'248'023'552);  // Mistral-7B-v0.3
  const ModelConfig gpt2 = with({12, 768, 3072, 12, 12, 64, 50257}, classic);
  CHECK(parameter_count(gpt2, {.tied = true, .position_rows = 1024}) == 124'439'808);
  const ModelConfig opt = with({12, 768, 3072, 12, 12, 64, 50272}, classic);
  CHECK(parameter_count(opt, {.tied = true, .position_rows = 2050}) == 125'239'296);
  const ModelConfig qwen2 =
      with({24, 896, 4864, 14, 2, 64, 151936}, [](ModelConfig& c) { c.attention_bias = AttentionBias::qkv; });
  CHECK(parameter_count(qwen2, tied) == 494'032'768);
  const ModelConfig qwen3 =
      with({28, 1024, 3072, 16, 8, 128, 151936}, [](ModelConfig& c) { c.qk_norm = QkNorm::per_head; });
  CHECK(parameter_count(qwen3, tied) == 596'049'920);
}

TEST_CASE("bytes of four-bit weights and of the KV cache follow from the shape") {
  // By hand: 12 blocks of 7,077,888 weights, 128 of which share 2.5 bytes; 49,171,200 others in fp16.
  constexpr std::int64_t linear = 12 * 7'077'888;
  CHECK(int4_bytes(configs::AmdLlama_135M::value, {}) == linear / 2 + linear / 128 * 5 / 2 + 2 * 49'171'200);
  CHECK(int4_group(configs::AmdLlama_135M::value) == 128);
  CHECK(int4_group(configs::SmolLM2_135M::value) == 64);  // hidden is 576
  CHECK(int4_group(Mine::value) == 0);
  CHECK(int4_bytes(Mine::value, {}) == 2 * parameter_count(Mine::value, {}));
  CHECK(kv_count_per_token(configs::Llama3_8B::value) * 2 == 131'072);
  CHECK(kv_count_per_token(configs::SmolLM2_135M::value) * 2 == 23'040);
}

TEST_CASE("the error for an unknown shape names the closest config, the difference and the struct to add") {
  ModelConfig shape = configs::Llama2_13B::value;
  shape.ffn = 11264;
  shape.kv_heads = 8;
  const std::string message = not_registered(KnownModels{}, shape, "some/folder").what();
  CHECK_THAT(message, Catch::Contains("some/folder"));
  CHECK_THAT(message, Catch::Contains("Llama-2-13B, differs: ffn 11264 instead of 13824, kv_heads 8 instead of 40"));
  CHECK_THAT(message, Catch::Contains(".kv_heads = 8, .head_dim = 128, .vocab = 32000}; };"));
  CHECK_THAT(not_registered(Registry<>{}, shape, "x").what(), Catch::Contains("registry is empty"));
}

TEST_CASE("kinds differ like sizes do") {
  ModelConfig shape = configs::Phi_2::value;
  CHECK(difference(shape, configs::Phi_2::value).empty());
  shape.order = BlockOrder::pre_norm;
  shape.mlp_bias = false;
  CHECK(difference(shape, configs::Phi_2::value) ==
        "order BlockOrder::pre_norm instead of BlockOrder::parallel, mlp_bias false instead of true");
  // Fields with default values are not in the printed struct; other fields are.
  const std::string source = source_of(configs::Phi_2::value, "MyPhi");
  CHECK_THAT(source,
             Catch::Contains(".vocab = 51200, .norm = slm::NormKind::layer, .norm_affine = "
                             "slm::NormAffine::weight_and_bias, .activation = slm::ActivationKind::gelu_tanh, "
                             ".gated = false, .rotary = 32, .order = slm::BlockOrder::parallel, "
                             ".attention_bias = slm::AttentionBias::all, .mlp_bias = true, .head_bias = true}"));
  CHECK_THAT(source_of(configs::Llama2_7B::value, "Mine"), Catch::Contains(".vocab = 32000}; };"));
}

TEST_CASE("invalid shapes are named") {
  const auto with = [](auto change) {
    ModelConfig shape = Mine::value;
    change(shape);
    return std::string(fault_of(shape));
  };
  CHECK(fault_of(Mine::value).empty());
  CHECK_THAT(with([](ModelConfig& c) { c.layers = 0; }), Catch::Contains("layers"));
  CHECK_THAT(with([](ModelConfig& c) { c.hidden = -4; }), Catch::Contains("hidden"));
  CHECK_THAT(with([](ModelConfig& c) { c.kv_heads = 3; }), Catch::Contains("kv_heads"));
  CHECK_THAT(with([](ModelConfig& c) { c.heads = 3, c.kv_heads = 2; }), Catch::Contains("multiple"));
  CHECK_THAT(with([](ModelConfig& c) { c.head_dim = 5; }), Catch::Contains("even"));
  CHECK_THAT(with([](ModelConfig& c) { c.vocab = 1 << 30; }), Catch::Contains("vocab"));
  CHECK_THAT(with([](ModelConfig& c) { c.rotary = 3; }), Catch::Contains("rotary must be even"));
  CHECK_THAT(with([](ModelConfig& c) { c.rotary = 6; }), Catch::Contains("at most head_dim"));
  CHECK_THAT(with([](ModelConfig& c) { c.rotary = 2, c.positions = Positions::alibi; }), Catch::Contains("rotary"));
  CHECK_THAT(with([](ModelConfig& c) { c.embedding = 4; }), Catch::Contains("learned positions"));
  CHECK_THAT(with([](ModelConfig& c) { c.norm = NormKind::none; }), Catch::Contains("norm"));
  CHECK(with([](ModelConfig& c) { c.head_dim = 5, c.positions = Positions::alibi; }).empty());
}
