// Gemma 4's config.json and GGUF metadata: both forms of the former describe one model, and what is refused.
#include <catch2/catch.hpp>
#include <string>

#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/gguf_mixers.hpp"
#include "support/changed_config.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

TEST_CASE("Gemma 4: the fields of published files describe the same layers as per_layer_config") {
  const ModelDescription dense = read_changed("gemma4-e2b", {{"per_layer_config", nullptr}, {"global_head_dim", 20}});
  CHECK(dense.config == read_changed("gemma4-e2b", Json::object()).config);
  const ModelDescription sparse = read_changed(
      "gemma4-moe", {{"per_layer_config", nullptr}, {"global_head_dim", 20}, {"num_global_key_value_heads", 1}});
  CHECK(sparse.config == read_changed("gemma4-moe", Json::object()).config);
  // Without attention_k_eq_v, the number of KV heads is that of all layers.
  const ModelDescription values = read_changed("gemma4-moe", {{"per_layer_config", nullptr},
                                                              {"global_head_dim", 20},
                                                              {"num_global_key_value_heads", 1},
                                                              {"attention_k_eq_v", false}});
  CHECK(values.config.kv_heads_of(2) == 2);
  CHECK(values.config.shapes.keys_as_values.empty());
}

TEST_CASE("Gemma 4: a folder and its GGUF file describe the same layers") {
  for (const char* name : {"gemma4-e2b", "gemma4-moe"}) {
    const Checkpoint folder(fixture(text("models/", name))), file(fixture(text("gguf/", name, ".gguf")));
    CAPTURE(name);
    CHECK(difference(file.config(), folder.config()).empty());
    CHECK(file.settings().rope_scaling == folder.settings().rope_scaling);
    CHECK(file.settings().windowed_layers == folder.settings().windowed_layers);
    CHECK(file.settings().windowed_rope_theta == folder.settings().windowed_rope_theta);
    CHECK(file.settings().embedding_scale == folder.settings().embedding_scale);
    CHECK(file.settings().logit_cap == folder.settings().logit_cap);
    CHECK(file.settings().router == folder.settings().router);
  }
}

TEST_CASE("Gemma 4: a GGUF file may hold keys and values of layers that read those of other layers") {
  const ModelConfig config = read_changed("gemma4-e2b", Json::object()).config;
  CHECK(detail::is_left_out("blk.3.attn_k.weight", "gemma4", config));
  CHECK(detail::is_left_out("blk.4.attn_v.weight", "gemma4", config));
  CHECK(detail::is_left_out("blk.4.attn_k_norm.weight", "gemma4", config));
  for (const char* read : {"blk.2.attn_k.weight", "blk.3.attn_q.weight", "blk.5.attn_k.weight", "blk.33.attn_k.weight"})
    CHECK_FALSE(detail::is_left_out(read, "gemma4", config));
}

TEST_CASE("Gemma 4 inside a multimodal model, whose other tensors are not read") {
  const Json text_config = config_of("gemma4-e2b");
  const Json whole{{"model_type", "gemma4"}, {"text_config", text_config}, {"vision_config", {{"hidden_size", 8}}}};
  const ModelDescription model = read_config_json(whole, "config.json");
  CHECK(model.config == read_changed("gemma4-e2b", Json::object()).config);
}

TEST_CASE("Gemma 4: a window in the last layer is dropped with a note") {
  const ModelDescription model =
      read_changed("gemma4-moe", {{"layer_types", {"sliding_attention", "sliding_attention", "sliding_attention"}}});
  CHECK(model.settings.window_of(2) == 0);
  REQUIRE(model.notes.size() == 1);
  CHECK_THAT(model.notes.front(), Catch::Contains("last layer"));
}

TEST_CASE("Gemma 4: layers that cannot be are refused by name") {
  const auto contradictory = Catch::Contains("config.contradictory"),
             unsupported = Catch::Contains("config.unsupported");
  CHECK(fault_of_changed("gemma4-e2b", Json::object()).empty());
  // Layers that share: all, or of a kind that no layer before them has.
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"num_kv_shared_layers", 5}}),
             contradictory && Catch::Contains("num_kv_shared_layers 5 of 5 layers"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"num_kv_shared_layers", 1000}}), contradictory);
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"num_kv_shared_layers", -1}}),
             Catch::Contains("'num_kv_shared_layers' is -1"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"num_kv_shared_layers", 3}}),
             contradictory && Catch::Contains("layer 2 reads the keys and values of an earlier layer"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"layer_types", {"sliding_attention"}}}),
             Catch::Contains("'layer_types'"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"layer_types", {"conv", "conv", "conv", "conv", "conv"}}}),
             Catch::Contains("sliding_attention and full_attention"));
  // Heads of layers.
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"per_layer_config", {{"9", {{"head_dim", 20}}}}}}),
             Catch::Contains("numbers of layers"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"per_layer_config", {{"0", {{"head_dim", 16}}}}}}),
             unsupported && Catch::Contains("different heads in layers of one kind"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"per_layer_config", {{"2", {{"intermediate_size", 16}}}}}}),
             unsupported && Catch::Contains("'intermediate_size' of single layers"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"per_layer_config", {{"2", {{"head_dim", 0}}}}}}),
             Catch::Contains("'head_dim' is 0"));
  CHECK_THAT(
      fault_of_changed("gemma4-e2b", {{"per_layer_config", {{"2", {{"head_dim", 21}}}, {"4", {{"head_dim", 21}}}}}}),
      Catch::Contains("config.unsound") && Catch::Contains("even"));
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"per_layer_config", {{"2", {{"num_key_value_heads", 3}}}}}}),
             Catch::Contains("config.unsound") && Catch::Contains("multiple"));
  // Inputs of layers.
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"vocab_size_per_layer_input", 126}}),
             unsupported && Catch::Contains("vocab_size_per_layer_input 126"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"hidden_size_per_layer_input", -1}}),
             Catch::Contains("'hidden_size_per_layer_input'"));
  // Experts.
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"num_experts", 0}}), Catch::Contains("'num_experts' is 0"));
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"num_experts", 1025}}), Catch::Contains("1..1024"));
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"num_experts", nullptr}}), Catch::Contains("'num_experts'"));
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"top_k_experts", 7}}),
             contradictory && Catch::Contains("top_k_experts 7"));
  CHECK_THAT(fault_of_changed("gemma4-moe", {{"top_k_experts", 0}}), Catch::Contains("'top_k_experts' is 0"));
  // Rotation and masks.
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}}}),
             unsupported && Catch::Contains("'yarn'"));
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}}}}}}),
             unsupported);
  CHECK_THAT(fault_of_changed("gemma4-e2b", {{"use_bidirectional_attention", "all"}}),
             unsupported && Catch::Contains("bidirectional"));
  CHECK(fault_of_changed("gemma4-e2b", {{"use_bidirectional_attention", "vision"}}).empty());
}

TEST_CASE("Gemma 4: layers that contradict the tensors, and fewer experts than the config states, are refused") {
  CHECK(error_of_changed("gemma4-e2b", Json::object()) == "no error");
  CHECK(error_of_changed("gemma4-e2b", {{"num_kv_shared_layers", 0}, {"use_double_wide_mlp", false}}) ==
        "checkpoint.missing-tensor");
  CHECK(error_of_changed("gemma4-e2b", {{"use_double_wide_mlp", false}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("gemma4-moe", {{"attention_k_eq_v", false}}) == "checkpoint.missing-tensor");
  CHECK(error_of_changed("gemma4-moe", {{"num_experts", 7}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("gemma4-moe", {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
                                        {"per_layer_config", nullptr},
                                        {"num_global_key_value_heads", 1},
                                        {"global_head_dim", 20}}) == "checkpoint.wrong-shape");
}
