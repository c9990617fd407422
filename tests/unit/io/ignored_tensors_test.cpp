// The tensors of a model's files that the model does not read, by prefix.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "slm/io/ignored_tensors.hpp"
#include "slm/io/safetensors.hpp"
#include "support/changed_config.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::map<std::string, std::int64_t> counts_of(const std::filesystem::path& model) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [prefix, ignored] : ignored_tensors(Checkpoint(model))) counts[prefix] = ignored.count;
  return counts;
}

}  // namespace

TEST_CASE("ignored tensors: a vision part and a layer for a further token") {
  const auto folder = fixture("models/qwen35");
  const auto groups = ignored_tensors(Checkpoint(folder));
  REQUIRE(groups.size() == 2);
  CHECK(groups.at("mtp.*").count == 15);
  CHECK(groups.at("model.visual.*").count == 21);
  std::uint64_t bytes = 0;
  const Safetensors file(folder / "model.safetensors");
  for (const auto& [name, tensor] : file.tensors) bytes += name.starts_with("mtp.") ? tensor.size_bytes : 0;
  CHECK(groups.at("mtp.*").bytes == bytes);
}

TEST_CASE("ignored tensors: none in models whose tensors are all read, in floats, codes and blocks") {
  for (const char* name : {"models/gemma3n", "models/qwen3moe", "models/gpt-oss-mxfp4", "gguf/gemma4-e2b.gguf",
                           "gguf/gemma3n.gguf", "gguf/phi3-longrope.gguf", "gguf/all-types.gguf"}) {
    CAPTURE(name);
    CHECK(counts_of(fixture(name)).empty());
  }
}

TEST_CASE("ignored tensors: keys and values of a layer that reads those of another one, without the layer's number") {
  const TemporaryFolder folder;
  const char* const windowed = "sliding_attention";
  const Json changes{{"num_kv_shared_layers", 4}, {"layer_types", {windowed, windowed, windowed, windowed, windowed}}};
  std::ofstream(folder.path() / "config.json") << changed_config("gemma3n", changes);
  std::filesystem::copy_file(fixture("models/gemma3n/model.safetensors"), folder.path() / "model.safetensors");
  const std::map<std::string, std::int64_t> expected{{"model.layers.*.self_attn.k_proj.*", 2},
                                                     {"model.layers.*.self_attn.v_proj.*", 2},
                                                     {"model.layers.*.self_attn.k_norm.*", 2}};
  CHECK(counts_of(folder.path()) == expected);
}
