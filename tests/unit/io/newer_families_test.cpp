// config.json of the newer dense families: both published forms describe one model, and what is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/newer_fixtures.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

ModelDescription read(const Json& config) { return read_config_json(config, "config.json"); }

Json config_of(const std::string& name) { return read_json_object(fixture(text("models/", name, "/config.json"))); }

/// The Error of the fixture's config.json with some fields replaced, or nothing.
std::string fault(const std::string& name, const Json& changes) {
  Json config = config_of(name);
  config.merge_patch(changes);  // null removes a field
  try {
    read(config);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// Settings in which equal layers have equal values, however the file says so.
ModelSettings by_layer(const ModelDescription& model) {
  ModelSettings settings = model.settings;
  settings.windowed_layers.clear();
  settings.unrotated_layers.clear();
  for (int l = 0; l < model.config.layers; ++l) {
    settings.windowed_layers.push_back(model.settings.window_of(l) != 0);
    settings.unrotated_layers.push_back(!model.settings.rotates(l));
  }
  return settings;
}

}  // namespace

TEST_CASE("the config.json of transformers 4 describes the same model as that of transformers 5") {
  int compared = 0;
  std::vector<std::string> names = newer_fixtures;
  names.insert(names.end(), hybrid_fixtures.begin(), hybrid_fixtures.end());
  for (const std::string& name : names) {
    const auto path = fixture(text("models/", name, "/config-v4.json"));
    if (!file_exists(path)) continue;
    CAPTURE(name);
    const ModelDescription older = read(read_json_object(path)), newer = read(config_of(name));
    CHECK(older.family == newer.family);
    CHECK(older.config == newer.config);
    CHECK(by_layer(older) == by_layer(newer));
    ++compared;
  }
  CHECK(compared == 35);
}

TEST_CASE("what a newer family cannot be is refused by name") {
  const auto unsupported = Catch::Contains("config.unsupported");
  CHECK_THAT(fault("gemma3-270m", {{"use_bidirectional_attention", true}}),
             unsupported && Catch::Contains("bidirectional attention"));
  CHECK_THAT(fault("gemma2", {{"hidden_activation", "silu"}}), unsupported && Catch::Contains("'silu'"));
  CHECK_THAT(fault("gemma3-4b", {{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}}}}}}),
             unsupported && Catch::Contains("layers with a window"));
  CHECK_THAT(fault("gemma3-270m", {{"layer_types", {"full_attention"}}}), Catch::Contains("layer_types"));
  CHECK_THAT(fault("falcon-7b", {{"alibi", true}}), unsupported && Catch::Contains("ALiBi"));
  CHECK_THAT(fault("cohere2", {{"use_parallel_block", false}}), unsupported);
  CHECK_THAT(fault("cohere2", {{"position_embedding_type", "alibi"}}), unsupported && Catch::Contains("'alibi'"));
  CHECK_THAT(fault("starcoder2", {{"norm_type", "rmsnorm"}}), unsupported && Catch::Contains("norm_type"));
  CHECK_THAT(fault("apertus", {{"hidden_act", "relu"}}), unsupported && Catch::Contains("xielu"));
  CHECK_THAT(fault("hunyuan-dense", {{"use_cla", true}}), unsupported);
  CHECK_THAT(fault("hunyuan-dense", {{"rope_parameters", {{"alpha", -1}}}}), Catch::Contains("alpha"));
  CHECK_THAT(fault("seed_oss", {{"attention_bias", false}, {"attention_out_bias", true}}), unsupported);
  CHECK_THAT(fault("smollm3", {{"no_rope_layers", {1, 0}}}), Catch::Contains("no_rope_layers"));
  CHECK_THAT(fault("smollm3", {{"no_rope_layers", {1, 0, 2, 1}}}), Catch::Contains("a list of 0 and 1"));
  CHECK_THAT(fault("exaone4-32b", {{"layer_types", nullptr}, {"sliding_window_pattern", "GLL"}}),
             Catch::Contains("sliding_window_pattern"));
  CHECK_THAT(fault("granite", {{"logits_scaling", 0}}), Catch::Contains("logits_scaling"));
  CHECK_THAT(fault("gemma2", {{"attn_logit_softcapping", -5}}), Catch::Contains("attn_logit_softcapping"));
  CHECK_THAT(fault("ministral3", {{"rope_parameters", {{"llama_4_scaling_beta", -1}}}}),
             Catch::Contains("llama_4_scaling_beta"));
}

TEST_CASE("a mixture of experts that cannot be is refused by name") {
  const auto contradictory = Catch::Contains("config.contradictory");
  CHECK_THAT(fault("qwen3moe", {{"num_local_experts", 0}}), Catch::Contains("'num_local_experts' is 0"));
  CHECK_THAT(fault("qwen3moe", {{"num_local_experts", 1025}}), Catch::Contains("1..1024"));
  CHECK_THAT(fault("qwen3moe", {{"num_local_experts", nullptr}}), Catch::Contains("'num_experts'"));
  CHECK_THAT(fault("qwen3moe", {{"num_experts", 4}}), contradictory && Catch::Contains("num_experts"));
  CHECK_THAT(fault("qwen3moe", {{"num_experts_per_tok", 9}}),
             contradictory && Catch::Contains("num_experts_per_tok 9 and num_local_experts 8"));
  CHECK_THAT(fault("qwen3moe", {{"num_experts_per_tok", 0}}), Catch::Contains("'num_experts_per_tok' is 0"));
  CHECK_THAT(fault("qwen3moe", {{"moe_intermediate_size", 0}}), Catch::Contains("'moe_intermediate_size' is 0"));
  CHECK_THAT(fault("qwen3moe", {{"mlp_only_layers", {0, 1}}}), Catch::Contains("without a layer that has experts"));
  CHECK_THAT(fault("qwen3moe", {{"mlp_only_layers", {-1}}}), Catch::Contains("'mlp_only_layers'"));
  CHECK_THAT(fault("qwen3moe", {{"num_hidden_layers", 1024}, {"num_local_experts", 1024}}),
             Catch::Contains("131072 experts"));
  CHECK_THAT(fault("ernie4.5-moe", {{"moe_num_shared_experts", 1024}, {"moe_intermediate_size", 1 << 20}}),
             Catch::Contains("'moe_num_shared_experts'"));
}

TEST_CASE("Phi MoE chooses two experts, with one factor of LongRoPE") {
  CHECK_THAT(fault("phimoe", {{"num_experts_per_tok", 3}}),
             Catch::Contains("config.unsupported") && Catch::Contains("3 experts of a token"));
  CHECK_THAT(fault("phimoe", {{"router_jitter_noise", -1}}), Catch::Contains("'router_jitter_noise'"));
  const Json factors(std::vector<double>(5, 1.5));
  Json rope{{"type", "longrope"},   {"short_factor", factors}, {"long_factor", factors},
            {"short_mscale", 1.25}, {"long_mscale", 1.25},     {"original_max_position_embeddings", 64}};
  Json config = config_of("phimoe");
  config.erase("rope_parameters");
  config["rope_scaling"] = rope;
  CHECK(read(config).settings.rope_scaling.attention_factor == 1.25f);
  rope["long_mscale"] = 1.5;
  CHECK_THAT(fault("phimoe", {{"rope_parameters", nullptr}, {"rope_scaling", rope}}),
             Catch::Contains("config.unsupported") && Catch::Contains("long_mscale"));
}

TEST_CASE("EXAONE 3 is Llama under other names") {
  const Checkpoint llama(fixture("models/llama-mha3h"));
  const ModelConfig& shape = llama.config();
  const Json config{{"model_type", "exaone"},
                    {"architectures", {"ExaoneForCausalLM"}},
                    {"num_layers", shape.layers},
                    {"hidden_size", shape.hidden},
                    {"intermediate_size", shape.ffn},
                    {"num_attention_heads", shape.heads},
                    {"num_key_value_heads", shape.kv_heads},
                    {"vocab_size", shape.vocab},
                    {"activation_function", "silu"},
                    {"layer_norm_epsilon", 1e-6}};
  const ModelDescription model = read(config);
  CHECK(model.config == shape);
  const auto names = TensorNames(model.config, model.settings, model.family->names).all();
  const auto has = [&](const char* name) {
    return std::any_of(names.begin(), names.end(), [&](const TensorName& one) { return one.name == name; });
  };
  for (const char* name :
       {"transformer.wte.weight", "transformer.h.1.ln_1.weight", "transformer.h.0.ln_2.weight",
        "transformer.h.0.attn.attention.q_proj.weight", "transformer.h.0.attn.attention.out_proj.weight",
        "transformer.h.0.mlp.c_fc_0.weight", "transformer.h.0.mlp.c_fc_1.weight", "transformer.h.1.mlp.c_proj.weight",
        "transformer.ln_f.weight", "lm_head.weight"}) {
    CAPTURE(name);
    CHECK(has(name));
  }
}

TEST_CASE("null is no soft cap, an absent one is the family's own") {
  Json config = config_of("gemma2");
  config.erase("attn_logit_softcapping");
  config["final_logit_softcapping"] = nullptr;
  CHECK(read(config).settings.attention_cap == 50);
  CHECK(read(config).settings.logit_cap == 0);
}

TEST_CASE("dynamic rope scaling begins where a text of slm ends, which a note says") {
  const ModelDescription model = read(config_of("llama-dynamic"));
  CHECK(model.settings.rope_scaling.kind == RopeScaling::Kind::none);
  REQUIRE(model.notes.size() == 1);
  CHECK_THAT(model.notes[0], Catch::Contains("after 16 positions"));
}
