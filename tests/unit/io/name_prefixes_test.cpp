// The prefixes of tensor names, and adapters whose modules have them.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/io/config_json.hpp"
#include "slm/io/name_prefixes.hpp"
#include "slm/io/peft.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::string found(const std::vector<std::string>& names, const Family& family = families::llama) {
  TensorMap tensors;
  for (const std::string& name : names) tensors.emplace(name, nullptr);
  const NamePrefixes prefixes = find_prefixes(tensors, family.names);
  return text(prefixes.model, " ", prefixes.head);
}

}  // namespace

TEST_CASE("the layers determine the prefix of a model's tensors, and the head may have a beginning of it") {
  const std::string layer = "layers.0.self_attn.o_proj.weight", embedding = "embed_tokens.weight";
  const auto with = [&](const std::string& prefix, const std::string& head) {
    return found({prefix + layer, prefix + embedding, head + "lm_head.weight"});
  };
  CHECK(with("model.", "") == "model. ");
  CHECK(with("", "") == " ");
  CHECK(with("language_model.model.", "language_model.") == "language_model.model. language_model.");
  CHECK(with("language_model.model.", "") == "language_model.model. ");
  CHECK(with("model.language_model.", "") == "model.language_model. ");
  CHECK(with("model.language_model.", "model.") == "model.language_model. model.");
  CHECK(with("language_model.", "language_model.") == "language_model. language_model.");
  CHECK(found({"language_model.model." + layer}) == "language_model.model. language_model.");  // tied
  CHECK(found({"a.model.layers.0.self_attn.o_proj.qweight", "a.model.embed_tokens.weight", "a.lm_head.qweight"}) ==
        "a.model. a.");
  CHECK(found({"a.transformer.h.0.attn.c_proj.weight", "a.transformer.wte.weight"}, families::gpt2) ==
        "a.transformer. a.");
  // Image encoders beside it, and two candidates.
  CHECK(found({"tower." + layer, "a." + layer, "a." + embedding}) == "a. ");
  CHECK(found({"tower." + layer, "model." + layer}) == "model. ");
  CHECK(found({"a." + layer, "a." + embedding, "b." + layer, "b." + embedding}) == " ");
  CHECK(found({"model.mtp_" + layer}) == " ");
  CHECK(found({}) == " ");
}

TEST_CASE("an adapter may have the prefix of the model's own class, the checkpoint's, or none") {
  const Checkpoint plain(fixture("models/llama-mha3h"));
  const TemporaryFolder model, adapter;
  write_random_adapter(adapter.path(), plain, {.rank = 8});
  Json config = read_json_object(adapter.path() / "adapter_config.json");
  config.erase("alpha_pattern");  // which names modules of the model's own class
  adapter.write("adapter_config.json", config.dump());
  const auto rename = [](const std::filesystem::path& from, const std::filesystem::path& to, const auto& name_of) {
    const Safetensors file(from);
    std::vector<Tensor> tensors;
    for (auto [name, tensor] : file.tensors) tensors.push_back(tensor), tensors.back().name = name_of(name);
    write_safetensors(to, tensors);
  };
  rename(fixture("models/llama-mha3h/model.safetensors"), model.path() / "model.safetensors",
         [](const std::string& name) { return "language_model." + name; });
  std::filesystem::copy_file(fixture("models/llama-mha3h/config.json"), model.path() / "config.json");
  const Checkpoint part(model.path());
  const std::uint64_t expected = read_peft(adapter.path(), plain).digest;
  CHECK(read_peft(adapter.path(), part).digest == expected);
  const std::string root = "base_model.model.";
  for (const std::string own : {"language_model.", ""}) {
    const TemporaryFolder other;
    std::filesystem::copy_file(adapter.path() / "adapter_config.json", other.path() / "adapter_config.json");
    rename(adapter.path() / "adapter_model.safetensors", other.path() / "adapter_model.safetensors",
           [&](const std::string& name) {
             const std::string module = name.substr(root.size());
             return own.empty() && module.starts_with("model.") ? root + module.substr(6) : root + own + module;
           });
    CHECK(read_peft(other.path(), part).digest == expected);
  }
}
