// The whole quantizer: its output loads and has the expected results, interrupted runs continue, and invalid input
// leaves no files.
#include "slm/quantize.hpp"
#include "slm/io/safetensors.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>

#include "slm/decode/perplexity.hpp"
#include "slm/speculative.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
namespace fs = std::filesystem;
using testing::demo_pair;
using testing::error_id;
using testing::TemporaryFolder;

namespace {

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// name -> content of every file.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_bytes(entry.path());
  }
  return files;
}

/// Some thousand tokens of Python.
fs::path calibration_text() { return slm::testing::source_path("examples/demo_pair/train.py"); }

quantize::Options quick() {
  quantize::Options options;
  options.calibration = {.samples = 3, .sequence_length = 96};
  options.search_samples = 2;
  return options;
}

double perplexity_of(const fs::path& folder) {
  const AnyModel model = load(folder);
  auto tokens = Tokenizer::from(folder).encode(read_bytes(slm::testing::source_path("examples/demo_pair/measure.py")));
  tokens.resize(1000);
  return perplexity(model, tokens, {.window = 256}).value();
}

struct Interrupted {};

}  // namespace

TEST_CASE("every output format loads, keeps the other files, and has a small error") {
  const TemporaryFolder folder;
  const fs::path model = demo_pair("draft");
  const double before = perplexity_of(model);
  for (const auto output : {quantize::Output::awq, quantize::Output::compressed_tensors}) {
    for (const bool symmetric : {false, true}) {
      for (const int group : {0, 32, whole_row}) {
        quantize::Options options;
        options.search = false;
        options.output = output;
        options.symmetric = symmetric;
        options.group = group;
        CAPTURE(static_cast<int>(output), symmetric, group);
        const fs::path result = folder.path() / "result";
        fs::remove_all(result);
        const quantize::Report report = quantize::quantize(model, result, {}, options);
        CHECK(report.group == (group == 0 ? 32 : group));  // 352 inputs are not a multiple of 64
        CHECK(report.bytes_after < 0.6 * double(report.bytes_before));
        CHECK(report.left_in_float.empty());
        CHECK(!fs::exists(result.string() + ".partial"));
        CHECK(read_bytes(result / "tokenizer.json") == read_bytes(model / "tokenizer.json"));
        const Json config = Json::parse(read_bytes(result / "config.json"));
        CHECK(config.at("quantization_config").at("quant_method") ==
              (output == quantize::Output::awq ? "awq" : "compressed-tensors"));
        CHECK(has_int4_layers(Checkpoint(result)));
        CHECK(perplexity_of(result) < 1.25 * before);
      }
    }
  }
}

TEST_CASE("a search is never worse than rounding on its own text, and not much worse on another text") {
  const TemporaryFolder folder;
  const fs::path model = demo_pair("draft");
  quantize::Options rounding = quick(), searching = quick();
  rounding.search = false;
  quantize::quantize(model, folder.path() / "rounded", {}, rounding);
  const auto report = quantize::quantize(model, folder.path() / "searched", calibration_text(), searching);
  REQUIRE(report.layers.size() == 2);
  for (const auto& layer : report.layers) {
    REQUIRE(layer.folds.size() == 4);
    for (const auto& fold : layer.folds) {
      CAPTURE(layer.layer, fold.fold);
      CHECK(fold.best <= fold.rounded);
      CHECK(fold.best > 0);
    }
  }
  // About 300 tokens of calibration for a small model: on another text the search neither gains nor loses reliably.
  CHECK(perplexity_of(folder.path() / "searched") < 1.02 * perplexity_of(folder.path() / "rounded"));
}

TEST_CASE("an interrupted run continues and gives the same bytes") {
  const TemporaryFolder folder;
  const fs::path model = demo_pair("draft"), whole = folder.path() / "whole", resumed = folder.path() / "resumed";
  quantize::quantize(model, whole, calibration_text(), quick());

  quantize::Options stopped = quick();
  for (const double at : {0.3, 0.7, 0.95}) {  // in the first layer, in the second, in the second again
    stopped.progress = [at](double share) {
      if (share > at) throw Interrupted{};
    };
    CHECK_THROWS_AS(quantize::quantize(model, resumed, calibration_text(), stopped), Interrupted);
    CHECK(!fs::exists(resumed));
    CHECK(fs::exists(resumed.string() + ".partial/layer-0.safetensors") == (at > 0.5));
  }
  // The remains of an interrupted write, and a result that was not renamed.
  std::ofstream(resumed.string() + ".partial/layer-1.safetensors.partial") << "half";
  fs::create_directory(resumed.string() + ".partial/result");
  std::ofstream(resumed.string() + ".partial/result/model.safetensors") << "half";

  quantize::Options other = quick();
  other.clip = false;
  CHECK(error_id([&] { quantize::quantize(model, resumed, calibration_text(), other); }) == "quantize.other-request");

  const auto report = quantize::quantize(model, resumed, calibration_text(), quick());
  CHECK(report.layers.size() == 1);  // the first layer was not searched again
  CHECK(contents(resumed) == contents(whole));
  CHECK(error_id([&] { quantize::quantize(model, resumed, calibration_text(), quick()); }) == "quantize.output-exists");
}

TEST_CASE("large models are written in shards") {
  const TemporaryFolder folder;
  const float values[] = {1, 2, 3, 4};
  const quantize::OutputFolder output(folder.path() / "out", Json::object());
  for (const char* name : {"a", "b", "c"}) {
    output.write(name, std::array{Tensor{name, DType::f32, {4}, reinterpret_cast<const std::byte*>(values), 16}});
  }
  CHECK(output.finish({"a", "b", "c"}, {{"x", 1}}, {}, 32) == 48);
  const Json index = Json::parse(read_bytes(folder.path() / "out/model.safetensors.index.json"));
  CHECK(index.at("metadata").at("total_size") == 48);
  CHECK(index.at("weight_map").at("b") == "model-00001-of-00002.safetensors");
  CHECK(index.at("weight_map").at("c") == "model-00002-of-00002.safetensors");
  CHECK(Safetensors(folder.path() / "out/model-00002-of-00002.safetensors").tensors.contains("c"));
}

TEST_CASE("invalid requests are rejected and leave no folder") {
  const TemporaryFolder folder;
  const fs::path model = demo_pair("draft"), out = folder.path() / "out";
  const auto refused = [&](const fs::path& calibration, const quantize::Options& options) {
    const std::string id = error_id([&] { quantize::quantize(model, out, calibration, options); });
    CHECK(!fs::exists(out));
    CHECK(!fs::exists(out.string() + ".partial"));
    return id;
  };
  CHECK(refused(folder.path() / "absent.txt", quick()) == "io.unreadable");
  CHECK(refused(folder.write("empty.txt", ""), quick()) == "io.unreadable");
  CHECK(refused(folder.write("short.txt", "def f():"), quick()) == "quantize.short-text");
  CHECK(refused(folder.write("latin.txt", "caf\xe9 " + std::string(4000, 'x')), quick()) == "quantize.not-utf8");
  CHECK(refused(folder.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n"), quick()) == "json.malformed");
  CHECK(refused(folder.write("number.jsonl", "{\"text\": 3}\n"), quick()) == "json.bad-field");
  CHECK(refused(folder.write("other.jsonl", "{\"content\": \"a\"}\n"), quick()) == "json.missing-field");
  quantize::Options options = quick();
  options.calibration.samples = 1 << 20;
  CHECK(refused(calibration_text(), options) == "quantize.short-text");
  options = quick();
  options.group = -2;
  CHECK(refused(calibration_text(), options) == "quantize.bad-options");

  options = quick();
  options.search = false;
  quantize::quantize(model, out, {}, options);
  CHECK(error_id([&] { quantize::quantize(out, folder.path() / "twice", {}, options); }) ==
        "quantize.already-quantized");
}

TEST_CASE("a config.json that is nested too deep is rejected, also if quantize only copies it") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model", out = folder.path() / "out";
  fs::copy(demo_pair("draft"), model);
  const std::string config = read_bytes(model / "config.json");
  const auto quantized = [&](std::size_t levels) {
    const std::string deep = std::string(levels, '[') + std::string(levels, ']');
    std::ofstream(model / "config.json") << "{\"unknown\": " << deep << ", " << config.substr(config.find('{') + 1);
    quantize::Options options;
    options.search = false;
    return error_id([&] { quantize::quantize(model, out, {}, options); });
  };
  CHECK(quantized(100'000) == "json.too-deep");
  CHECK(!fs::exists(out));
  CHECK(quantized(deepest_json - 1) == "no error");
  CHECK(error_id([&] { Checkpoint{out}; }) == "no error");
}

TEST_CASE("a separate head stays separate, although the copied config.json has tie_word_embeddings") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model", out = folder.path() / "out";
  fs::copy(testing::fixture("models/llama-mha3h"), model);
  Json config = read_json_object(model / "config.json");
  config["tie_word_embeddings"] = true;
  std::ofstream(model / "config.json") << config.dump();
  quantize::Options options;
  options.search = false;
  options.group = whole_row;
  quantize::quantize(model, out, {}, options);
  CHECK(read_json_object(out / "config.json").at("tie_word_embeddings") == false);
  CHECK(Checkpoint(out).has("lm_head.weight"));
  CHECK(Checkpoint(out).notes().empty());
}

TEST_CASE("other files beside the model do not disturb quantization") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model", out = folder.path() / "out";
  fs::copy(demo_pair("draft"), model);
  std::ofstream(model / "caf\xe9.txt") << "a name that is not UTF-8";
  REQUIRE(mkfifo((model / "LICENSE").c_str(), 0600) == 0);
  quantize::Options options;
  options.search = false;
  CHECK(error_id([&] { quantize::quantize(model, out, {}, options); }) == "no error");
  CHECK(fs::exists(out / "tokenizer.json"));
  CHECK(!fs::exists(out / "LICENSE"));
}

TEST_CASE("layers that are not a multiple of the group stay unchanged") {
  const TemporaryFolder folder;
  quantize::Options options;
  options.search = false;
  options.group = 64;  // not a divisor of the 352 inputs of `down`
  const auto report = quantize::quantize(demo_pair("draft"), folder.path() / "out", {}, options);
  CHECK(report.left_in_float ==
        std::vector<std::string>{"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"});
  const Json config = Json::parse(read_bytes(folder.path() / "out/config.json"));
  CHECK(config.at("quantization_config").at("modules_to_not_convert").size() == 2);
  CHECK(perplexity_of(folder.path() / "out") < 1.25 * perplexity_of(demo_pair("draft")));
}

TEST_CASE("groups smaller than a vector, or not a multiple of vectors, are searched and clipped") {
  for (const int group : {4, 44}) {
    CAPTURE(group);
    const TemporaryFolder folder;
    quantize::Options options = quick();
    options.group = group;  // 44 divides only the 352 inputs of `down`
    const auto report = quantize::quantize(demo_pair("draft"), folder.path() / "out", calibration_text(), options);
    CHECK(report.left_in_float.empty() == (group == 4));
    CHECK(perplexity_of(folder.path() / "out") < 1.25 * perplexity_of(demo_pair("draft")));
  }
}

TEST_CASE("values outside the range of F16 are rejected, and kept by compressed-tensors") {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  fs::copy(testing::fixture("models/llama-mha3h"), model);
  const Safetensors source(model / "model.safetensors");
  std::vector<Tensor> tensors;
  std::vector<float> large;
  for (const auto& [name, tensor] : source.tensors) {
    tensors.push_back(tensor);
    if (name != "model.norm.weight") continue;
    REQUIRE(tensor.dtype == DType::f32);
    large.assign(static_cast<std::size_t>(tensor.elements()), 70000.0f);
    tensors.back().bytes = reinterpret_cast<const std::byte*>(large.data());
  }
  write_safetensors(folder.path() / "large.safetensors", tensors);
  fs::rename(folder.path() / "large.safetensors", model / "model.safetensors");
  quantize::Options options;
  options.search = false;
  options.group = whole_row;
  CHECK(error_id([&] { quantize::quantize(model, folder.path() / "awq", {}, options); }) == "quantize.overflow");
  CHECK(!fs::exists(folder.path() / "awq"));
  options.output = quantize::Output::compressed_tensors;
  quantize::quantize(model, folder.path() / "compressed", {}, options);
  const Checkpoint kept(folder.path() / "compressed");
  CHECK(kept.tensor("model.norm.weight", {48}).dtype == DType::bf16);
}

TEST_CASE("a full disk is an error without partial output") {
  const TemporaryFolder folder;
  quantize::Options options;
  options.search = false;
  const fs::path out = folder.path() / "out";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &usual) == 0);
  for (const rlim_t most : {1000, 100'000, 300'000, 500'000}) {  // in a layer, in the embedding, in the joined file
    rlimit tight = usual;
    tight.rlim_cur = most;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const std::string id = error_id([&] { quantize::quantize(demo_pair("draft"), out, {}, options); });
    setrlimit(RLIMIT_FSIZE, &usual);
    CHECK(id == "io.unwritable");
    CHECK(!fs::exists(out));
  }
  quantize::quantize(demo_pair("draft"), out, {}, options);  // with free space again, it continues
  CHECK(perplexity_of(out) > 1);
}
