// Reading config.json, family by family: the meaning of absent fields, and rejections.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "slm/model/alibi.hpp"
#include "slm/model/rope.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

ModelDescription read(const Json& config) { return read_config_json(config, "config.json"); }

Json config_of(const char* name) { return read_json_object(fixture(text("models/", name, "/config.json"))); }

/// The fixture's config.json with some fields replaced.
Json with(const char* name, const Json& changes) {
  Json config = config_of(name);
  config.merge_patch(changes);  // null removes a field
  return config;
}

std::string fault(const Json& config) {
  try {
    read(config);
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("config.json"));
    return error.what();
  }
}

std::string fault(const char* name, const Json& changes) { return fault(with(name, changes)); }

void copy_with_config(const std::filesystem::path& from, const std::filesystem::path& to, const Json& config) {
  std::filesystem::copy(from / "model.safetensors", to / "model.safetensors");
  std::ofstream(to / "config.json") << config;
}

}  // namespace

TEST_CASE("a family is identified by its model_type, or without it by its architecture") {
  CHECK(read(config_of("gpt2")).family == &families::gpt2);
  CHECK(read(with("gpt2", {{"model_type", nullptr}})).family == &families::gpt2);
  CHECK(read(with("mpt-alibi-4h", {{"model_type", nullptr}})).family == &families::mpt);
  CHECK(read(with("phi-partial", {{"architectures", nullptr}})).family == &families::phi);
  CHECK(read(with("phi-partial", {{"architectures", {"PhiForSequenceClassification"}}})).family == &families::phi);

  CHECK_THAT(fault("gpt2", {{"model_type", "mamba"}}),
             Catch::Contains("model_type 'mamba'") && Catch::Contains("config.unsupported"));
  CHECK_THAT(fault("gpt2", {{"model_type", "hf_olmo"}, {"auto_map", {{"AutoModel", "x.y"}}}}),
             Catch::Contains("model_type 'hf_olmo', whose code is part of the checkpoint"));
  CHECK_THAT(fault("gpt2", {{"model_type", nullptr}, {"architectures", {"Mystery"}}}),
             Catch::Contains("architecture 'Mystery'"));
  CHECK_THAT(fault("gpt2", {{"architectures", {"MistralForCausalLM"}}}), Catch::Contains("config.contradictory"));
  CHECK_THAT(fault("gpt2", {{"architectures", "GPT2LMHeadModel"}}), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault("gpt2", {{"model_type", 3}}), Catch::Contains("json.bad-field"));
}

TEST_CASE("one size under two names must have one value") {
  CHECK(fault("gpt2", {{"hidden_size", 48}}).empty());
  CHECK_THAT(fault("gpt2", {{"hidden_size", 64}}), Catch::Contains("hidden_size is 64 and n_embd is 48"));
  CHECK_THAT(fault("mpt-alibi-4h", {{"num_attention_heads", 2}}), Catch::Contains("config.contradictory"));
  CHECK_THAT(fault("mistral-swa8", {{"n_layer", 3}}), Catch::Contains("config.contradictory"));
  CHECK_THAT(fault("mistral-swa8", {{"rope_parameters", {{"rope_theta", 5e5}}}}),
             Catch::Contains("rope_theta has two values"));
  CHECK_THAT(fault("mistral-swa8", {{"rope_scaling", {{"rope_type", "linear"}, {"type", "llama3"}, {"factor", 2}}}}),
             Catch::Contains("rope_type 'linear' and type 'llama3'"));
}

TEST_CASE("Mistral: an absent window is 4096, null is none") {
  CHECK(read(config_of("mistral-swa8")).settings.window == 8);
  Json config = config_of("mistral-swa8");
  config.erase("sliding_window");
  CHECK(read(config).settings.window == 4096);
  config["sliding_window"] = nullptr;
  CHECK(read(config).settings.window == 0);
  CHECK_THAT(fault("mistral-swa8", {{"sliding_window", 0}}), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault("mistral-swa8", {{"sliding_window", "8"}}), Catch::Contains("json.bad-field"));
}

TEST_CASE("Qwen: the window is used only if it is enabled, for its layers") {
  CHECK(read(config_of("qwen2-bias-tied")).settings.window == 0);
  CHECK(read(config_of("qwen2-bias-tied")).config.attention_bias == AttentionBias::qkv);
  const ModelSettings settings = read(config_of("qwen2-swa-from-layer1")).settings;
  CHECK(settings.window_of(0) == 0);
  CHECK(settings.window_of(1) == 8);
  const Json listed = with("qwen2-swa-from-layer1", {{"layer_types", {"sliding_attention", "full_attention"}}});
  CHECK(read(listed).settings.window_of(0) == 8);
  CHECK(read(listed).settings.window_of(1) == 0);
  CHECK_THAT(fault("qwen2-swa-from-layer1", {{"layer_types", {"sliding_attention"}}}),
             Catch::Contains("a list of 2 kinds"));
  CHECK_THAT(fault("qwen2-swa-from-layer1", {{"layer_types", {"sliding_attention", "mamba"}}}),
             Catch::Contains("json.bad-field"));
  const ModelConfig qwen3 = read(config_of("qwen3-qknorm-headdim")).config;
  CHECK(qwen3.qk_norm == QkNorm::per_head);
  CHECK(qwen3.head_dim == 32);
  CHECK(qwen3.attention_bias == AttentionBias::none);
}

TEST_CASE("OLMo: the epsilon is fixed, clip_qkv is read") {
  const ModelDescription tied = read(with("olmo-tied", {{"rms_norm_eps", 0.5}}));
  CHECK(tied.settings.norm_epsilon == 1e-5f);
  CHECK(tied.settings.clip_qkv == 0);
  CHECK(tied.config.norm_affine == NormAffine::none);
  CHECK(read(config_of("olmo-clip-untied")).settings.clip_qkv == 0.8f);
  CHECK_THAT(fault("olmo-tied", {{"clip_qkv", -1}}), Catch::Contains("json.bad-field"));
}

TEST_CASE("Phi: part of a head rotates") {
  CHECK(read(config_of("phi-partial")).config.rotary == 8);
  CHECK(read(with("phi-partial", {{"partial_rotary_factor", nullptr}})).config.rotary == 10);  // 0.5
  CHECK(read(with("phi-partial", {{"partial_rotary_factor", 1.0}})).config.rotary == 0);       // all
  CHECK(read(with("phi-partial",
                  {{"partial_rotary_factor", nullptr}, {"rope_parameters", {{"partial_rotary_factor", 0.4}}}}))
            .config.rotary == 8);
  CHECK(read(with("phi-partial", {{"qk_layernorm", true}})).config.qk_norm == QkNorm::per_head);
  CHECK_THAT(fault("phi-partial", {{"partial_rotary_factor", 0.25}}), Catch::Contains("rotary must be even"));
  CHECK_THAT(fault("phi-partial", {{"partial_rotary_factor", 0.01}}), Catch::Contains("config.unsupported"));
  CHECK_THAT(fault("phi-partial", {{"partial_rotary_factor", 1.5}}), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault("phi-partial", {{"num_attention_heads", 7}, {"num_key_value_heads", 7}}),
             Catch::Contains("config.unsound"));
  CHECK_THAT(fault("phi-partial", {{"hidden_act", "tanh"}}), Catch::Contains("the activation 'tanh'"));
}

TEST_CASE("LongRoPE: lists, original context and factor, under all their names") {
  const RopeScaling scaling = read(config_of("phi3-longrope")).settings.rope_scaling;
  CHECK(scaling.kind == RopeScaling::Kind::longrope);
  CHECK(scaling.original_context == 16);
  CHECK(scaling.short_factors.size() == 12);
  CHECK(scaling.long_factors.back() == 60.0f);
  CHECK(scaling.attention_factor == Approx(1.5));  // sqrt(1 + ln 32 / ln 16)
  const auto changed = [](const Json& rope) { return with("phi3-longrope", {{"rope_scaling", rope}}); };
  for (const char* name : {"su", "yarn", "longrope"}) {  // older names of the same
    CHECK(read(changed({{"type", name}})).settings.rope_scaling.kind == RopeScaling::Kind::longrope);
  }
  CHECK(read(changed({{"attention_factor", 2.5}})).settings.rope_scaling.attention_factor == 2.5f);
  const Json inside = with("phi3-longrope", {{"original_max_position_embeddings", nullptr},
                                             {"rope_scaling", {{"original_max_position_embeddings", 16}}}});
  CHECK(read(inside).settings.rope_scaling.attention_factor == Approx(1.5));
  const Json unstretched = with("phi3-longrope", {{"original_max_position_embeddings", 512}});
  CHECK(read(unstretched).settings.rope_scaling.attention_factor == 1);

  CHECK_THAT(fault(changed({{"short_factor", nullptr}})), Catch::Contains("no field 'short_factor'"));
  CHECK_THAT(fault(changed({{"long_factor", nullptr}})), Catch::Contains("no field 'long_factor'"));
  CHECK_THAT(fault(changed({{"long_factor", {1.0, 2.0}}})), Catch::Contains("a list of 12 numbers"));
  CHECK_THAT(fault(changed({{"long_factor", "long"}})), Catch::Contains("json.bad-field"));
  Json list = config_of("phi3-longrope")["rope_scaling"]["long_factor"];
  list[3] = 0;
  CHECK_THAT(fault(changed({{"long_factor", list}})), Catch::Contains("json.bad-field"));
  list[3] = "2";
  CHECK_THAT(fault(changed({{"long_factor", list}})), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault(changed({{"original_max_position_embeddings", 32}})), Catch::Contains("has two values"));
  CHECK_THAT(fault("phi3-longrope", {{"original_max_position_embeddings", nullptr}}),
             Catch::Contains("LongRoPE without"));
  CHECK_THAT(fault("phi3-longrope", {{"original_max_position_embeddings", 1}}), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault(changed({{"type", "yarn"}, {"short_factor", nullptr}})), Catch::Contains("short_factor"));
}

TEST_CASE("LongRoPE: each table is the plain one divided by its factors") {
  ModelSettings settings = read(config_of("phi3-longrope")).settings;
  const auto plain = inverse_frequencies(24, ModelSettings{});
  for (const bool beyond : {false, true}) {
    const auto& factors = beyond ? settings.rope_scaling.long_factors : settings.rope_scaling.short_factors;
    const auto stretched = inverse_frequencies(24, settings, beyond);
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(stretched[i] == Approx(double{plain[i]} / double{factors[i]}).epsilon(1e-6));
  }
}

TEST_CASE("GPT-2: the meaning of its fields") {
  const ModelDescription model = read(config_of("gpt2"));
  CHECK(model.config.ffn == 4 * 48);  // n_inner null
  CHECK(model.settings.tied_embeddings);
  CHECK(read(with("gpt2", {{"n_inner", 100}})).config.ffn == 100);
  CHECK(read(with("gpt2", {{"scale_attn_weights", false}})).settings.attention_scale == 1);
  CHECK_THAT(fault("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}), Catch::Contains("config.unsupported"));
  CHECK_THAT(fault("gpt2", {{"n_head", 5}}), Catch::Contains("5 heads do not divide a width of 48"));
  CHECK_THAT(fault("gpt2", {{"n_embd", nullptr}}), Catch::Contains("no field 'n_embd'"));
  CHECK_THAT(fault("gpt2", {{"n_inner", -3}}), Catch::Contains("json.bad-field"));
}

TEST_CASE("OPT: post-norm and a narrow embedding") {
  const ModelConfig plain = read(config_of("opt-preln")).config, narrow = read(config_of("opt-postln-proj")).config;
  CHECK(plain.order == BlockOrder::pre_norm);
  CHECK(plain.embedding == 0);
  CHECK(plain.final_norm);
  CHECK(narrow.order == BlockOrder::post_norm);
  CHECK(narrow.embedding == 32);
  CHECK_FALSE(narrow.final_norm);
  CHECK(read(with("opt-preln", {{"enable_bias", false}})).config.attention_bias == AttentionBias::none);
  CHECK(read(config_of("opt-preln")).settings.position_offset == 2);
}

TEST_CASE("MPT: LLM Foundry's keys, transformers' defaults if its class wrote the file") {
  const ModelDescription model = read(config_of("mpt-alibi-4h"));
  CHECK(model.config.positions == Positions::alibi);
  CHECK(model.config.norm_affine == NormAffine::weight);
  Json bare = config_of("mpt-alibi-4h");
  bare.erase("attn_config");
  bare.erase("no_bias");
  CHECK(read(bare).config.positions == Positions::alibi);  // MptForCausalLM
  CHECK(read(bare).config.attention_bias == AttentionBias::none);
  bare["architectures"] = {"MPTForCausalLM"};
  CHECK(read(bare).config.positions == Positions::learned);
  CHECK(read(bare).config.attention_bias == AttentionBias::all);
  CHECK(read(config_of("mpt-foundry-mqa")).config.kv_heads == 1);
  CHECK(read(config_of("mpt-foundry-mqa")).settings.attention_scale == 0.3f);
  const ModelDescription whole = read(config_of("mpt-foundry-qkln-alibi6h"));
  CHECK(whole.config.qk_norm == QkNorm::whole);
  CHECK(whole.settings.logit_scale == 0.5f);
  CHECK(read(config_of("mosaicgpt-wpe-bias-clip")).settings.logit_scale == Approx(1 / std::sqrt(48.0)));

  const auto changed = [](const Json& attention) { return with("mpt-foundry-3b-like", {{"attn_config", attention}}); };
  CHECK(read(changed({{"attn_type", "grouped_query_attention"}, {"kv_n_heads", 2}})).config.kv_heads == 2);
  CHECK(read(changed({{"sliding_window_size", 7}})).settings.window == 8);
  CHECK(read(changed({{"qk_gn", true}})).config.qk_norm == QkNorm::per_head);
  CHECK(read(with("mpt-foundry-3b-like", {{"learned_pos_emb", false}})).config.positions == Positions::none);
  CHECK(read(with("mpt-foundry-3b-like", {{"norm_type", "rmsnorm"}})).config.norm == NormKind::rms);
  CHECK(read(with("mpt-foundry-3b-like", {{"ffn_config", {{"ffn_hidden_size", 100}}}})).config.ffn == 100);
  CHECK_THAT(fault(changed({{"alibi", true}, {"rope", true}})), Catch::Contains("both alibi and rope"));
  CHECK_THAT(fault(changed({{"qk_ln", true}, {"qk_gn", true}})), Catch::Contains("both qk_ln and qk_gn"));
  CHECK_THAT(fault(changed({{"attn_type", "multiquery_attention"}, {"kv_n_heads", 2}})),
             Catch::Contains("config.contradictory"));
  CHECK_THAT(fault(changed({{"attn_type", "grouped_query_attention"}})), Catch::Contains("no field 'kv_n_heads'"));
  CHECK_THAT(fault(changed({{"attn_type", "grouped_query_attention"}, {"kv_n_heads", 4}})),
             Catch::Contains("config.unsound"));
  for (const Json& attention :
       {Json{{"rope", true}}, Json{{"prefix_lm", true}}, Json{{"fused_qkv", false}}, Json{{"attn_type", "mixture"}}}) {
    CHECK_THAT(fault(changed(attention)), Catch::Contains("config.unsupported"));
  }
  CHECK_THAT(fault("mpt-alibi-4h", {{"logit_scale", "large"}}), Catch::Contains("inv_sqrt_d_model"));
  CHECK_THAT(fault("mpt-alibi-4h", {{"norm_type", "batchnorm"}}), Catch::Contains("config.unsupported"));
  CHECK_THAT(fault("mpt-alibi-4h", {{"ffn_config", {{"ffn_type", "mptglu"}}}}), Catch::Contains("the MLP 'mptglu'"));
  CHECK_THAT(fault("mpt-alibi-4h", {{"expansion_ratio", 1e9}}), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault("mpt-alibi-4h", {{"attn_config", 3}}), Catch::Contains("json.bad-field"));
}

TEST_CASE("ALiBi: the slopes of any number of heads") {
  const ModelSettings eight;
  CHECK(alibi_slopes(3, eight) == std::vector<float>{0.0625f, 0.00390625f, 0.25f});
  CHECK(alibi_slopes(6, eight) == std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f});
  const auto twenty = alibi_slopes(20, eight);
  CHECK(twenty[0] == Approx(std::exp2(-0.5)));
  CHECK(twenty[16] == Approx(0.840896415));
  CHECK(twenty[19] == Approx(0.297301779));
  CHECK(alibi_slopes(32, eight)[0] == Approx(std::exp2(-0.25)));
  ModelSettings first_generation;
  first_generation.alibi_power_of_two = false;  // mosaic_gpt
  CHECK(alibi_slopes(3, first_generation)[2] == Approx(std::exp2(-8.0)));
  CHECK(alibi_slopes(16, first_generation) == alibi_slopes(16, eight));
}

TEST_CASE("weights of one family under the config.json of another are recognised") {
  const TemporaryFolder folder;
  Json config = config_of("llama-mha3h");
  copy_with_config(fixture("models/gpt2"), folder.path(), config);
  const Checkpoint checkpoint(folder.path());
  CHECK_THROWS_WITH(checkpoint.tensor("model.embed_tokens.weight", {97, 48}),
                    Catch::Contains("config.json says 'llama', but the tensors have names of 'gpt2'") &&
                        Catch::Contains("checkpoint.other-family"));
  // One missing tensor is not another family.
  const TemporaryFolder own;
  copy_with_config(fixture("models/llama-mha3h"), own.path(), config);
  CHECK_THROWS_WITH(Checkpoint(own.path()).tensor("model.layers.7.input_layernorm.weight", {48}),
                    Catch::Contains("checkpoint.missing-tensor"));
}
