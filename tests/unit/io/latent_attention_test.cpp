// Latent attention in config.json and GGUF metadata: both describe one model, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "support/changed_config.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("latent attention: the published form of config.json describes the same model") {
  const Json rope{{"type", "yarn"},  {"factor", 4},    {"mscale", 0.707},     {"mscale_all_dim", 0.707},
                  {"beta_fast", 32}, {"beta_slow", 1}, {"rope_theta", 10000}, {"original_max_position_embeddings", 32}};
  const ModelDescription published = read_changed("deepseek-v2-lite", {{"rope_parameters", nullptr},
                                                                       {"rope_scaling", rope},
                                                                       {"head_dim", nullptr},
                                                                       {"qk_head_dim", nullptr},
                                                                       {"scoring_func", "softmax"},
                                                                       {"moe_layer_freq", 1}});
  const ModelDescription written = read_changed("deepseek-v2-lite", Json::object());
  CHECK(difference(published.config, written.config).empty());
  CHECK(published.settings == written.settings);
  CHECK(written.config.head_dim == 16 + 8);
  CHECK(written.config.latent == LatentAttention{.rank = 16, .query_rank = 0, .unrotated = 12, .value = 10});
  const double stretched = 0.1 * 0.707 * std::log(4.0) + 1;
  CHECK(written.settings.attention_scale == Approx(stretched * stretched / std::sqrt(20.0)));
  const ModelDescription glm =
      read_changed("glm4-moe-lite", {{"mlp_layer_types", nullptr}, {"scoring_func", "sigmoid"}});
  CHECK(glm.settings == read_changed("glm4-moe-lite", Json::object()).settings);
  CHECK_FALSE(read_changed("deepseek-v3", {{"rope_interleave", false}}).config.rotates_pairs);
}

TEST_CASE("latent attention: a folder and its GGUF files describe the same model") {
  for (const auto& [name, file_name] : {std::pair{"deepseek-v3", "deepseek-v3"},
                                        {"glm4-moe-lite", "glm4-moe-lite"},
                                        {"deepseek-v2-lite", "deepseek-v2-lite"},
                                        {"deepseek-v2-lite", "deepseek-v2-lite-kv-b"}}) {
    const Checkpoint folder(fixture(text("models/", name))), file(fixture(text("gguf/", file_name, ".gguf")));
    CAPTURE(file_name);
    CHECK(difference(file.config(), folder.config()).empty());
    CHECK(file.settings().rope_scaling == folder.settings().rope_scaling);
    CHECK(file.settings().attention_scale == Approx(folder.settings().attention_scale));
    CHECK(file.settings().dense_layers == folder.settings().dense_layers);
    CHECK(file.settings().router == folder.settings().router);
  }
}

TEST_CASE("latent attention: groups of experts by their best expert") {
  const Json groups{{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 2}};
  const RouterSettings router = read_changed("deepseek-v2-lite", groups).settings.router;
  CHECK(router.by_best);
  CHECK(router.groups == 4);
  CHECK(router.kept_groups == 2);
  CHECK(read_changed("deepseek-v2-lite", {{"n_group", 4}, {"topk_group", 2}}).settings.router.groups == 0);
}

TEST_CASE("latent attention: configs that cannot be are refused by name") {
  const auto contradictory = Catch::Contains("contradicts itself");
  CHECK(fault_of_changed("deepseek-v3", Json::object()).empty());
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"kv_lora_rank", 0}}), Catch::Contains("'kv_lora_rank' is 0"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"kv_lora_rank", 1024}}), Catch::Contains("head_dim must be 1..1024"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"kv_lora_rank", 11}}), Catch::Contains("must be 1..rank"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"q_lora_rank", -1}}), Catch::Contains("'q_lora_rank' is -1"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"qk_rope_head_dim", 0}, {"qk_head_dim", nullptr}}),
             Catch::Contains("'qk_rope_head_dim' is 0"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"qk_rope_head_dim", 7}, {"qk_head_dim", nullptr}}),
             Catch::Contains("even"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"qk_nope_head_dim", 13}}),
             contradictory && Catch::Contains("qk_head_dim"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"v_head_dim", 25}}), Catch::Contains("1..head_dim"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"v_head_dim", -10}}), Catch::Contains("'v_head_dim' is -10"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"attention_bias", true}}),
             Catch::Contains("biases of latent attention"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"partial_rotary_factor", 0.5}}),
             Catch::Contains("a part of the rotated"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"scoring_func", "softmax"}}), Catch::Contains("scoring_func"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"topk_method", "greedy"}}), Catch::Contains("topk_method"));
  CHECK_THAT(fault_of_changed("deepseek-v2-lite", {{"topk_method", "noaux_tc"}}),
             Catch::Contains("topk_method 'noaux_tc'"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"n_routed_experts", 0}}), Catch::Contains("'n_routed_experts' is 0"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"num_experts_per_tok", 9}}), contradictory);
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"n_group", 3}}), contradictory && Catch::Contains("3 groups"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"topk_group", 1}}), contradictory);
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"topk_group", 5}}), contradictory);
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"n_shared_experts", 1000}, {"moe_intermediate_size", 1 << 20}}),
             Catch::Contains("'n_shared_experts' is 1000"));
  CHECK_THAT(fault_of_changed("deepseek-v3", {{"first_k_dense_replace", 2}}),
             Catch::Contains("without a layer that has experts"));
  CHECK_THAT(fault_of_changed("glm4-moe-lite", {{"mlp_layer_types", {"dense"}}}), Catch::Contains("'mlp_layer_types'"));
  CHECK_THAT(fault_of_changed("glm4-moe-lite", {{"mlp_layer_types", {"dense", "linear"}}}),
             Catch::Contains("'mlp_layer_types'"));
}

TEST_CASE("latent attention: widths that contradict the tensors are refused before the weights are read") {
  CHECK(error_of_changed("deepseek-v3", Json::object()) == "no error");
  CHECK(error_of_changed("deepseek-v3", {{"kv_lora_rank", 17}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("deepseek-v3", {{"q_lora_rank", 15}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("deepseek-v3", {{"q_lora_rank", nullptr}}) == "checkpoint.missing-tensor");
  CHECK(error_of_changed("deepseek-v3", {{"v_head_dim", 11}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("deepseek-v3", {{"num_attention_heads", 5}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("deepseek-v3", {{"n_routed_experts", 12}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("deepseek-v2-lite", {{"q_lora_rank", 14}}) == "checkpoint.missing-tensor");
}
