#include <catch2/catch.hpp>

#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

ModelDescription read(const Json& config) { return read_config_json(config, "config.json"); }

Json with(const char* field, Json value) {
  Json config = config_json(tiny_shape, false, 512);
  config[field] = std::move(value);
  return config;
}

std::string fault(const Json& config) {
  try {
    read(config);
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("config.json"));
    return error.id();
  }
}

}  // namespace

TEST_CASE("absent fields of config.json have transformers' defaults") {
  const ModelDescription model = read({{"num_hidden_layers", 2},
                                       {"hidden_size", 768},
                                       {"intermediate_size", 3072},
                                       {"num_attention_heads", 12},
                                       {"vocab_size", 32000}});
  CHECK(model.config.kv_heads == 12);
  CHECK(model.config.head_dim == 64);
  CHECK(model.settings.rope_theta == 10000.0f);
  CHECK(model.settings.norm_epsilon == 1e-6f);
  CHECK(model.settings.rope_scaling.kind == RopeScaling::Kind::none);
  CHECK_FALSE(model.settings.tied_embeddings);
  CHECK(model.settings.end_tokens.empty());
}

TEST_CASE("fields of config.json are read, of old and new writers") {
  Json config = config_json(tiny_shape, true, 4096);
  config["head_dim"] = 32;
  config["eos_token_id"] = {3, 5};
  config["attention_bias"] = true;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 32.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  ModelDescription model = read(config);
  CHECK(model.config.head_dim == 32);
  CHECK(model.settings.context == 4096);
  CHECK(model.settings.tied_embeddings);
  CHECK(model.config.attention_bias == AttentionBias::all);
  CHECK(model.settings.end_tokens == std::vector<Token>{3, 5});
  CHECK(model.settings.rope_scaling.kind == RopeScaling::Kind::llama3);
  CHECK(model.settings.rope_scaling.factor == 32.0f);

  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  CHECK(read(config).settings.rope_theta == 500000.0f);
}

TEST_CASE("absurd fields of config.json are rejected, each with a separate error") {
  CHECK(fault(with("hidden_size", -64)) == "json.bad-field");
  CHECK(fault(with("hidden_size", "64")) == "json.bad-field");
  CHECK(fault(with("hidden_size", 64.5)) == "json.bad-field");
  CHECK(fault(with("hidden_size", 1e300)) == "json.bad-field");
  CHECK(fault(with("hidden_size", 18446744073709551615ull)) == "json.bad-field");
  CHECK(fault(with("num_hidden_layers", 0)) == "json.bad-field");
  CHECK(fault(with("vocab_size", nullptr)) == "json.missing-field");
  CHECK(fault(with("num_key_value_heads", 3)) == "config.unsound");
  CHECK(fault(with("head_dim", 15)) == "config.unsound");
  CHECK(fault(with("rms_norm_eps", -1)) == "json.bad-field");
  CHECK(fault(with("rope_theta", 0)) == "json.bad-field");
  CHECK(fault(with("rope_scaling", "llama3")) == "json.bad-field");
  CHECK(fault(with("rope_scaling", {{"type", "yarn"}})) == "json.missing-field");
  CHECK(fault(with("rope_scaling", {{"type", "yarn"}, {"factor", 0.5}})) == "json.bad-field");
  CHECK(fault(with("rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"beta_fast", -1}})) == "json.bad-field");
  CHECK(fault(with("rope_scaling", {{"type", "spiral"}})) == "config.unsupported");
  CHECK(fault(with("eos_token_id", "2")) == "json.bad-field");
  CHECK(fault(with("eos_token_id", {1, 2.5})) == "json.bad-field");
  CHECK(fault(with("hidden_act", "tanh")) == "config.unsupported");
  CHECK(fault(with("model_type", "mamba")) == "config.unsupported");
  CHECK(fault(with("unknown_field", 1)).empty());
}

TEST_CASE("a rope scaling with a missing number is rejected: none has a default") {
  const Json linear{{"rope_type", "linear"}, {"factor", 2.0}};
  const Json llama3{{"rope_type", "llama3"},
                    {"factor", 32.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    for (const Json& whole : {linear, llama3}) {
      CHECK(fault(with(place, whole)).empty());
      for (const auto& [name, value] : whole.items()) {
        if (name == "rope_type") continue;
        CAPTURE(place, whole, name);
        Json part = whole;
        part[name] = nullptr;
        CHECK(fault(with(place, part)) == "json.missing-field");
        part.erase(name);
        CHECK(fault(with(place, part)) == "json.missing-field");
      }
    }
  }
  CHECK(fault(with("rope_scaling", {{"type", "dynamic"}})) == "json.missing-field");
}

TEST_CASE("the end tokens of generation_config.json have priority") {
  const TemporaryFolder folder;
  folder.write("config.json", with("eos_token_id", 7).dump());
  CHECK(read_model_description(folder.path()).settings.end_tokens == std::vector<Token>{7});
  folder.write("generation_config.json", R"({"eos_token_id": [8, 9]})");
  CHECK(read_model_description(folder.path()).settings.end_tokens == std::vector<Token>{8, 9});
}

TEST_CASE("the sampling of generation_config.json is suggested, without invalid values") {
  const TemporaryFolder folder;
  folder.write("config.json", with("eos_token_id", 7).dump());
  const auto read_with = [&](const char* text) {
    folder.write("generation_config.json", text);
    return read_model_description(folder.path());
  };
  CHECK_FALSE(read_model_description(folder.path()).settings.sampling.temperature);
  const SuggestedSampling all =
      read_with(R"({"do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.25,
                    "repetition_penalty": 1.5})")
          .settings.sampling;
  CHECK(all.temperature == 0.5f);
  CHECK(all.top_k == 20);
  CHECK(all.top_p == 0.75f);
  CHECK(all.min_p == 0.25f);
  CHECK(all.repetition_penalty == 1.5f);
  CHECK(read_with(R"({"do_sample": false, "temperature": 0.5})").settings.sampling.temperature == 0.0f);
  const ModelDescription odd =
      read_with(R"({"temperature": "hot", "top_k": -1, "top_p": 0, "min_p": 1.5, "repetition_penalty": [1]})");
  CHECK(odd.notes.size() == 5);
  CHECK_THAT(odd.notes.front(), Catch::Contains("temperature is 'hot'"));
  const SuggestedSampling& none = odd.settings.sampling;
  CHECK_FALSE((none.temperature || none.top_k || none.top_p || none.min_p || none.repetition_penalty));
}

TEST_CASE("an end token outside the vocabulary is ignored with a note, in any file") {
  const TemporaryFolder folder;
  folder.write("config.json", with("eos_token_id", 7).dump());
  const auto read_with = [&](const char* file, const Json& ids) {
    folder.write(file,
                 (file == std::string{"config.json"} ? with("eos_token_id", ids) : Json{{"eos_token_id", ids}}).dump());
    return read_model_description(folder.path());
  };
  for (const Json& id : {Json(-1), Json(101), Json(50256), Json(-9223372036854775807), Json(18446744073709551615ull)}) {
    CAPTURE(id);
    ModelDescription model = read_with("config.json", id);
    CHECK(model.settings.end_tokens.empty());
    REQUIRE(model.notes.size() == 1);
    CHECK_THAT(model.notes.front(), Catch::Contains(id.dump()) && Catch::Contains("0..100"));
    model = read_with("config.json", {id, 100, id});
    CHECK(model.settings.end_tokens == std::vector<Token>{100});
    CHECK_THAT(model.notes.at(0), Catch::Contains("1 more"));
    read_with("config.json", 7);
    model = read_with("generation_config.json", id);
    CHECK(model.settings.end_tokens == std::vector<Token>{7});
    CHECK_THAT(model.notes.at(0), Catch::Contains("generation_config.json"));
    model = read_with("generation_config.json", {0, id});
    CHECK(model.settings.end_tokens == std::vector<Token>{0});
    CHECK(model.notes.size() == 1);
    std::filesystem::remove(folder.path() / "generation_config.json");
  }
  CHECK(read_with("config.json", Json::array()).notes.empty());
}

TEST_CASE("each shard is opened once, and its tensors are found") {
  const Checkpoint checkpoint(fixture("models/llama-sharded-bf16"));
  CHECK(checkpoint.tensor("model.norm.weight", {checkpoint.config().hidden}).dtype == DType::bf16);
  CHECK(checkpoint.has("model.layers.1.mlp.down_proj.weight"));
}

TEST_CASE("missing files of a folder are named") {
  const TemporaryFolder folder;
  const auto open = [&] { Checkpoint{folder.path()}; };
  CHECK_THROWS_WITH(Checkpoint(folder.path() / "absent"), Catch::Contains("checkpoint.no-folder"));
  CHECK_THROWS_WITH(open(), Catch::Contains("config.json") && Catch::Contains("checkpoint.no-config"));
  folder.write("config.json", config_json(tiny_shape, false, 512).dump());
  CHECK_THROWS_WITH(open(), Catch::Contains("checkpoint.no-weights") && Catch::Contains("pytorch_model.bin"));

  SECTION("an index must not leave its folder") {
    for (const char* file : {"../secret", "/etc/passwd", "", "..", "a/b"}) {
      folder.write("model.safetensors.index.json", Json{{"weight_map", {{"w", file}}}}.dump());
      CHECK_THROWS_AS(open(), Error);
    }
    folder.write("model.safetensors.index.json", R"({"weight_map": {"w": 3}})");
    CHECK_THROWS_WITH(open(), Catch::Contains("field 'w' is 3, expected a file name in the same folder"));
    folder.write("model.safetensors.index.json", R"({"metadata": {}})");
    CHECK_THROWS_WITH(open(), Catch::Contains("no field 'weight_map'"));
  }
  SECTION("a shard without its tensor") {
    write_random_checkpoint<float>(folder.path(), tiny_shape, 1);
    std::filesystem::rename(folder.path() / "model.safetensors", folder.path() / "model-1.safetensors");
    folder.write("model.safetensors.index.json", R"({"weight_map": {"no.such.tensor": "model-1.safetensors"}})");
    CHECK_THROWS_WITH(open(), Catch::Contains("no.such.tensor") && Catch::Contains("model-1.safetensors"));
  }
  SECTION("a tensor of the wrong shape, a missing one, a truncated file") {
    write_random_checkpoint<float>(folder.path(), tiny_shape, 1);
    const Checkpoint checkpoint(folder.path());
    CHECK_THROWS_WITH(checkpoint.tensor("model.norm.weight", {63}),
                      Catch::Contains("is [64], config.json makes it [63]"));
    CHECK_THROWS_WITH(checkpoint.tensor("model.norm.bias", {64}), Catch::Contains("no tensor 'model.norm.bias' [64]"));
    std::filesystem::resize_file(folder.path() / "model.safetensors", 20000);
    CHECK_THROWS_AS(open(), Error);
  }
}

TEST_CASE("pieces are token texts by id") {
  const TemporaryFolder folder;
  CHECK(read_vocabulary(folder.path()).empty());
  folder.write("tokenizer.json", R"({"model":{"vocab":{"a":0,"b":2}},"added_tokens":[{"id":3,"content":"<s>"}]})");
  CHECK(read_vocabulary(folder.path()) == std::vector<std::string>{"a", "", "b", "<s>"});
  folder.write("tokenizer.json", R"({"model":{"vocab":{"a":-1}}})");
  CHECK_THROWS_WITH(read_vocabulary(folder.path()), Catch::Contains("tokenizer.bad-id"));
  folder.write("tokenizer.json", R"({"model":{"vocab":[]}})");
  CHECK_THROWS_WITH(read_vocabulary(folder.path()), Catch::Contains("json.bad-field"));
}

TEST_CASE("a token beyond the ids of a model is rejected, and ids do not determine allocations") {
  const TemporaryFolder folder;
  const auto fault = [&](const std::string& json, int vocab) {
    folder.write("tokenizer.json", json);
    try {
      read_vocabulary(folder.path(), vocab);
      return std::string{};
    } catch (const Error& error) {
      return std::string{error.what()};
    }
  };
  const std::string plain = R"({"model":{"vocab":{"a":0,"b":2}}})";
  const std::string added = R"({"model":{"vocab":{"a":0}},"added_tokens":[{"id":2,"content":"b"}]})";
  for (const std::string& json : {plain, added}) {
    CHECK(fault(json, 3).empty());
    CHECK_THAT(fault(json, 2), Catch::Contains("tokenizer.json") && Catch::Contains("'b' the id 2, expected 0..1") &&
                                   Catch::Contains("tokenizer.bad-id"));
  }
  for (const char* id : {"1000000", "16777215", "18446744073709551615", "-1", "1.0", "\"1\""}) {
    const std::string far = text(R"({"model":{"vocab":{"a":0}},"added_tokens":[{"content":"b","id":)", id, "}]}");
    CHECK_THAT(fault(far, most_vocab), Catch::Contains("tokenizer.bad-id"));
  }
}

TEST_CASE("a vocabulary is read once, on first use") {
  const TemporaryFolder folder;
  const auto vocabulary = vocabulary_reader(folder.path(), 10), other = vocabulary;
  folder.write("tokenizer.json", R"({"model":{"vocab":{"a":10}}})");
  CHECK_THROWS_WITH(vocabulary(), Catch::Contains("tokenizer.bad-id"));
  folder.write("tokenizer.json", R"({"model":{"vocab":{"a":0}}})");
  CHECK(vocabulary() == std::vector<std::string>{"a"});  // a failed attempt is repeated
  folder.write("tokenizer.json", "{}");
  CHECK(vocabulary() == std::vector<std::string>{"a"});
  CHECK(other() == std::vector<std::string>{"a"});
}

TEST_CASE("a model without a folder consists of its description and the given tensors") {
  const std::vector<float> values(6, 0.5f);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const ModelDescription model = read(config_json(tiny_shape, true, 512));
  const Checkpoint checkpoint("made", model, {},
                              {{"a", DType::f32, {2, 3}, bytes, 24}, {"b", DType::f32, {6}, bytes, 24}});
  CHECK(checkpoint.folder() == "made");
  CHECK(checkpoint.config() == tiny_shape);
  CHECK(checkpoint.settings().tied_embeddings);
  CHECK(checkpoint.tensor("a", {2, 3}).bytes == bytes);
  CHECK(checkpoint.has("b"));
  CHECK_FALSE(checkpoint.has("c"));
}
