// Gemma 3n's config.json: both of its forms describe one model, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "slm/config/registry.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "support/changed_config.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The fixture in the form of transformers 4.
Json published_form() {
  return {{"rope_parameters", nullptr}, {"rope_theta", 1000000}, {"rope_local_base_freq", 10000}};
}

/// The GGUF fixture with other bytes `skipped` bytes after `key`.
std::string changed_gguf(const std::string& key, std::size_t skipped, std::string_view bytes) {
  std::ifstream stored(fixture("gguf/gemma3n.gguf"), std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(stored), {}};
  const std::size_t at = file.find(key);
  REQUIRE(at != std::string::npos);
  file.replace(at + key.size() + skipped, bytes.size(), bytes);
  return file;
}

std::string error_of_gguf(const std::string& contents) {
  const TemporaryFolder folder;
  const auto path = folder.write("m.gguf", contents);
  return error_id([&] { Checkpoint{path}; });
}

}  // namespace

TEST_CASE("Gemma 3n: a GGUF file describes the model of its folder") {
  const Checkpoint folder(fixture("models/gemma3n")), file(fixture("gguf/gemma3n.gguf"));
  CHECK(difference(file.config(), folder.config()).empty());
  CHECK(file.settings().windowed_layers == folder.settings().windowed_layers);
  CHECK(file.settings().windowed_rope_theta == folder.settings().windowed_rope_theta);
  CHECK(file.settings().embedding_scale == folder.settings().embedding_scale);
  CHECK(file.settings().logit_cap == folder.settings().logit_cap);
  for (int l = 0; l < 5; ++l) CHECK(file.settings().gate_cutoff(l) == folder.settings().gate_cutoff(l));
}

TEST_CASE("Gemma 3n: GGUF files that cannot be are refused by name") {
  const std::string four_bytes("\1\0\0\0", 4);
  CHECK(error_of_gguf(changed_gguf("gemma3n.altup.active_idx", 4, "")) == "no error");
  CHECK(error_of_gguf(changed_gguf("gemma3n.altup.active_idx", 4, four_bytes)) == "config.unsupported");
  CHECK(error_of_gguf(changed_gguf("gemma3n.altup.num_inputs", 4, four_bytes)) == "gguf.bad-value");
  CHECK(error_of_gguf(changed_gguf("gemma3n.altup.num_inputs", 4, std::string("\5\0\0\0", 4))) ==
        "checkpoint.wrong-shape");
  CHECK(error_of_gguf(changed_gguf("embedding_length_per_layer_input", 4, std::string(4, '\0'))) == "gguf.bad-value");
  // an array: its type, the type and the number of its elements
  CHECK(error_of_gguf(changed_gguf("activation_sparsity_scale", 16, std::string("\0\0\xC0\x7F", 4))) ==
        "gguf.bad-value");
  CHECK(error_of_gguf(changed_gguf("gemma3n.activation_sparsity_scal", 0, "?")) == "gguf.missing-key");
  CHECK(error_of_gguf(changed_gguf("blk.0.laurel_", 0, "x")) == "checkpoint.missing-tensor");
  CHECK(error_of_gguf(changed_gguf("altup_pro", 0, "x")) == "gguf.unknown-tensor");
}

TEST_CASE("Gemma 3n: the published form of config.json describes the same model") {
  const ModelDescription written = read_changed("gemma3n", Json::object());
  const ModelDescription published = read_changed("gemma3n", published_form());
  CHECK(difference(published.config, written.config).empty());
  CHECK(published.settings == written.settings);
  CHECK(published.settings.rope_theta == 1000000);
  CHECK(published.settings.windowed_rope_theta == 10000);
  const ModelDescription usual = read_changed("gemma3n", {{"rope_parameters", nullptr}});
  CHECK(usual.settings == written.settings);
  const Json text_config = config_of("gemma3n");
  const Json whole{{"model_type", "gemma3n"}, {"text_config", text_config}, {"audio_config", {{"hidden_size", 8}}}};
  CHECK(read_config_json(whole, "config.json").config == written.config);
}

TEST_CASE("Gemma 3n: fields that a file leaves out have upstream's values") {
  Json config{{"model_type", "gemma3n_text"}, {"num_hidden_layers", 35}, {"hidden_size", 2048}, {"vocab_size", 262400}};
  config.merge_patch({{"num_attention_heads", 8}, {"num_key_value_heads", 2}});
  const ModelDescription model = read_config_json(config, "config.json");
  CHECK(model.config.ffn == 16384);
  CHECK(model.config.head_dim == 256);
  CHECK(model.config.streams == ResidualStreams{.count = 4, .low_rank = 64, .scaled = true});
  CHECK(model.config.shapes.inputs == 256);
  CHECK(model.config.input_rows() == 262144);
  CHECK(model.settings.logit_cap == 30);
  CHECK(model.settings.window_of(3) == 512);
  CHECK(model.settings.window_of(4) == 0);
  CHECK(model.settings.gate_cutoff(9) == Approx(1.6448536));
  CHECK(model.settings.gate_cutoff(10) == -std::numeric_limits<float>::infinity());
  CHECK_FALSE(model.config.shapes.borrowing.has(19));
  CHECK(model.config.shapes.borrowing.has(20));
  CHECK(kv_layer_of(model.config, model.settings, 34) == 19);
  CHECK(kv_layer_of(model.config, model.settings, 33) == 18);
}

TEST_CASE("Gemma 3n: shares of gates become cutoffs in deviations of a normal distribution") {
  const auto cutoff = [](double share) {
    const ModelDescription model =
        read_changed("gemma3n", {{"activation_sparsity_pattern", {share, 0.0, 0.0, 0.0, 0.0}}});
    return model.settings.gate_cutoff(0);
  };
  CHECK(cutoff(0.5) == Approx(0).margin(1e-7));
  CHECK(cutoff(0.8) == Approx(0.8416212));
  CHECK(cutoff(0.2) == Approx(-0.8416212));
  CHECK(cutoff(0.999999) == Approx(4.7534243));
  CHECK(cutoff(0) == -std::numeric_limits<float>::infinity());
  CHECK(std::isfinite(cutoff(1e-300)));
}

TEST_CASE("Gemma 3n: MLPs of two widths") {
  const ModelConfig config = read_changed("gemma3n", {{"intermediate_size", {40, 40, 64, 64, 40}}}).config;
  CHECK(config.ffn_of(1) == 40);
  CHECK(config.ffn_of(2) == 64);
  CHECK(config.ffn_of(4) == 40);
  CHECK(read_changed("gemma3n", {{"intermediate_size", 40}}).config == read_changed("gemma3n", Json::object()).config);
}

TEST_CASE("Gemma 3n: configs that cannot be are refused by name") {
  const auto unsupported = Catch::Contains("config.unsupported");
  const auto refused = [](const Json& changes, const auto& matcher) {
    CHECK_THAT(fault_of_changed("gemma3n", changes), matcher);
  };
  CHECK(fault_of_changed("gemma3n", Json::object()).empty());
  refused({{"altup_num_inputs", 1}}, Catch::Contains("'altup_num_inputs' is 1"));
  refused({{"altup_num_inputs", 17}}, Catch::Contains("2..16"));
  refused({{"altup_active_idx", 1}}, unsupported && Catch::Contains("altup_active_idx 1"));
  refused({{"altup_active_idx", 4}}, Catch::Contains("'altup_active_idx' is 4"));
  refused({{"laurel_rank", 0}}, Catch::Contains("'laurel_rank' is 0"));
  refused({{"hidden_size_per_layer_input", 0}}, Catch::Contains("'hidden_size_per_layer_input' is 0"));
  refused({{"vocab_size_per_layer_input", 0}}, Catch::Contains("'vocab_size_per_layer_input' is 0"));
  refused({{"vocab_size_per_layer_input", 1 << 30}}, Catch::Contains("'vocab_size_per_layer_input'"));
  for (const Json& pattern :
       {Json(0.8), Json{0.8}, Json{0.8, 0, 0, 0, 1}, Json{-0.1, 0, 0, 0, 0}, Json{"0", 0, 0, 0, 0}})
    refused({{"activation_sparsity_pattern", pattern}}, Catch::Contains("5 numbers of 0 to below 1"));
  refused({{"intermediate_size", {40, 40}}}, Catch::Contains("a list of 5 widths"));
  refused({{"intermediate_size", {40, 40, 40, 40, 0}}}, Catch::Contains("widths of 1..4194304"));
  refused({{"intermediate_size", {40, 40, 40, 40, -1}}}, Catch::Contains("widths of 1..4194304"));
  refused({{"intermediate_size", {40, 40, 40, 40, 4194305}}}, Catch::Contains("widths of 1..4194304"));
  refused({{"intermediate_size", {40, 48, 56, 40, 40}}}, unsupported && Catch::Contains("more than two widths"));
  refused({{"num_kv_shared_layers", 5}}, Catch::Contains("num_kv_shared_layers 5 of 5 layers"));
  refused({{"num_kv_shared_layers", nullptr}}, Catch::Contains("num_kv_shared_layers 15 of 5 layers"));
  refused({{"num_kv_shared_layers", 4}}, Catch::Contains("layer 1 reads the keys and values of an earlier layer"));
  refused({{"head_dim", 13}}, Catch::Contains("head_dim must be even"));
  refused({{"rope_parameters", {{"full_attention", {{"rope_type", "spiral"}}}}}}, unsupported);
}

TEST_CASE("Gemma 3n: widths that contradict the tensors are refused before the weights are read") {
  CHECK(error_of_changed("gemma3n", Json::object()) == "no error");
  CHECK(error_of_changed("gemma3n", {{"altup_num_inputs", 5}}) == "checkpoint.missing-tensor");
  CHECK(error_of_changed("gemma3n", {{"altup_num_inputs", 3}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("gemma3n", {{"laurel_rank", 9}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("gemma3n", {{"vocab_size_per_layer_input", 126}}) == "checkpoint.wrong-shape");
  CHECK(error_of_changed("gemma3n", {{"num_kv_shared_layers", 0}}) == "checkpoint.missing-tensor");
  // Keys and values of layers that read others' are left alone.
  CHECK(error_of_changed("gemma3n", {{"num_kv_shared_layers", 3},
                                     {"layer_types",
                                      {"full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                                       "full_attention"}}}) == "no error");
}

TEST_CASE("residual streams: shapes that cannot be, and the source of a config") {
  const ModelConfig sound = read_changed("gemma3n", Json::object()).config;
  CHECK(fault_of(sound).empty());
  const auto fault = [&](auto change) {
    ModelConfig config = sound;
    change(config);
    return std::string(fault_of(config));
  };
  CHECK_THAT(fault([](ModelConfig& config) { config.order = BlockOrder::output_norm; }), Catch::Contains("sandwich"));
  CHECK_THAT(fault([](ModelConfig& config) { config.gated = false; }), Catch::Contains("gated MLPs"));
  CHECK_THAT(fault([](ModelConfig& config) { config.shapes.inputs = 0; }), Catch::Contains("own inputs"));
  CHECK_THAT(fault([](ModelConfig& config) { config.shapes.scaled = true; }), Catch::Contains("without factors"));
  CHECK_THAT(fault([](ModelConfig& config) { config.streams.count = 1; }), Catch::Contains("2..16"));
  CHECK_THAT(fault([](ModelConfig& config) { config.streams.low_rank = 0; }), Catch::Contains("rank"));
  CHECK_THAT(fault([](ModelConfig& config) { config.shapes.input_rows = -1; }), Catch::Contains("0..1000000"));
  CHECK_FALSE(sound.is_uniform());
  CHECK_THAT(source_of(sound, "Mine"), Catch::Contains(".streams = {.count = 4, .low_rank = 8, .scaled = true}"));
}
