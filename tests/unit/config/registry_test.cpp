#include <catch2/catch.hpp>

#include "slm/config/known_models.hpp"
#include "slm/config/registry.hpp"
#include "slm/model/tensor_names.hpp"

using namespace slm;

namespace {

struct Mine {
  static constexpr std::string_view name = "Mine";
  static constexpr ModelConfig value{
      .layers = 1, .hidden = 8, .ffn = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .vocab = 16};
};

/// Of every tensor that the loader would ask for.
template <class Model>
std::int64_t parameters(const Family& family = families::llama, bool untied = false) {
  ModelSettings settings;
  if constexpr (requires { Model::tied; }) settings.tied_embeddings = Model::tied && !untied;
  if constexpr (requires { Model::position_rows; }) settings.context = Model::position_rows;
  std::int64_t total = 0;
  for (const TensorName& name : TensorNames(Model::value, family).all(settings)) {
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

TEST_CASE("the error for an unknown shape names the closest config, the difference and the struct to paste") {
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
  // What has its default is not in the struct to paste; what has not, is.
  const std::string source = source_of(configs::Phi_2::value, "MyPhi");
  CHECK_THAT(source,
             Catch::Contains(".vocab = 51200, .norm = slm::NormKind::layer, .norm_affine = "
                             "slm::NormAffine::weight_and_bias, .activation = slm::ActivationKind::gelu_tanh, "
                             ".gated = false, .rotary = 32, .order = slm::BlockOrder::parallel, "
                             ".attention_bias = slm::AttentionBias::all, .mlp_bias = true, .head_bias = true}"));
  CHECK_THAT(source_of(configs::Llama2_7B::value, "Mine"), Catch::Contains(".vocab = 32000}; };"));
}

TEST_CASE("unsound shapes are named") {
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
