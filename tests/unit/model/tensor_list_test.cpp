// The list of a model's tensors: loading reads exactly these, and config.json's tie of the head is compared with the
// file.
#include <catch2/catch.hpp>
#include <set>

#include "slm/backend/reference/reference.hpp"
#include "slm/io/config_json.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

/// Every fixture with a config.json, those of ../shared if they exist, and the embedded pair, in floating point: the
/// tensors of quantized matrices have other names.
std::vector<fs::path> folders() {
  std::vector<fs::path> found{demo_pair("draft"), demo_pair("target")};
  for (const fs::path& root : {fixture("models"), source_path("../shared/fixtures/models")}) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(root, absent)) {
      const fs::path config = entry.path() / "config.json";
      if (fs::exists(config) && !read_json_object(config).contains("quantization_config"))
        found.push_back(entry.path());
    }
  }
  REQUIRE(found.size() > 25);
  return found;
}

void read_weights(std::shared_ptr<const Checkpoint> checkpoint) {
  backend::Reference device;
  ModelWeights<Fp32, backend::Reference>(std::move(checkpoint), device, {});
}

std::vector<float> logits_of(const fs::path& folder, const std::vector<Token>& ids) {
  Session session(load(folder, backend::Reference{}));
  const auto rows = session.forward(ids, static_cast<int>(ids.size()));
  return {rows.data, rows.data + rows.size()};
}

/// A copy of a folder with one field of config.json changed; null removes it.
void copy_with(const fs::path& from, const fs::path& to, const char* field, const Json& value) {
  fs::copy(from, to);
  Json config = read_json_object(from / "config.json");
  config[field] = value;
  if (value.is_null()) config.erase(field);
  std::ofstream(to / "config.json") << config.dump();
}

void write_with(const fs::path& folder, const std::vector<Tensor>& tensors) {
  write_safetensors(folder / "new.safetensors", tensors);
  fs::rename(folder / "new.safetensors", folder / "model.safetensors");
}

}  // namespace

TEST_CASE("a model loads from the tensors of its list alone, and needs every one of them except the head") {
  for (const fs::path& folder : folders()) {
    CAPTURE(folder);
    const Checkpoint whole(folder);
    const auto opened_without = [&](std::string_view left_out) {
      std::vector<Tensor> tensors;
      for (const TensorName& name : whole.names().all()) {
        REQUIRE(whole.has(name.name));
        if (name.name != left_out) tensors.push_back(*whole.find(name.name));
      }
      ModelDescription description{.family = &whole.family(), .config = whole.config(), .settings = whole.settings()};
      description.says_tied = true;
      return std::make_shared<const Checkpoint>("some", description, QuantizationSettings{}, std::move(tensors));
    };
    CHECK(error_id([&] { read_weights(opened_without("")); }) == "no error");
    std::set<std::string> kinds;  // one layer of several equal ones is enough
    for (const TensorName& name : whole.names().all()) {
      const bool deep =
          name.name.starts_with(whole.names().layers()) && !name.name.starts_with(text(whole.names().layers(), 0, "."));
      if (deep) continue;
      CAPTURE(name.name);
      const bool is_head = name.name == text(whole.family().names.head, ".weight");
      const auto missing = is_head ? "no error" : "checkpoint.missing-tensor";  // it gives hidden states without a head
      CHECK(error_id([&] { read_weights(opened_without(name.name)); }) == missing);
      if (is_head) CHECK(error_id([&] { opened_without(name.name)->check_head(); }) == "checkpoint.no-head");
    }
  }
}

TEST_CASE("a separate head in the file is used for any tie setting in config.json, and a copy of the table is not") {
  int heads = 0, tables = 0;
  for (const fs::path& folder : folders()) {
    CAPTURE(folder);
    if (fs::exists(folder / "model.safetensors.index.json")) continue;
    const Checkpoint whole(folder);
    // Heads of other names, other notes, and ties in another object of config.json are left out.
    if (whole.family().names.head != "lm_head" || folder.filename() == "llama-dynamic") continue;
    if (read_json_object(folder / "config.json").contains("text_config")) continue;
    const std::vector<Token> ids{1, 2, 3, 5, 8};
    const auto expected = logits_of(folder, ids);
    const bool untied = whole.has("lm_head.weight");
    for (const Json& flag : {Json(true), Json()}) {
      const TemporaryFolder copies;
      const fs::path changed = copies.path() / "changed";
      copy_with(folder, changed, "tie_word_embeddings", flag);
      const ModelDescription stated = read_config_json(read_json_object(changed / "config.json"), "c");
      CHECK(Checkpoint(changed).notes().size() == (untied && stated.settings.tied_embeddings));
      CHECK(Checkpoint(changed).settings().tied_embeddings == !untied);
      CHECK(logits_of(changed, ids) == expected);
      if (untied) {
        ++heads;
        continue;
      }
      ++tables;
      const std::string table = whole.names().weights(Role::embedding).front().name;
      std::vector<Tensor> tensors;
      for (const auto& [name, tensor] : whole.tensors()) tensors.push_back(*tensor);
      tensors.push_back(*whole.find(table));
      tensors.back().name = "lm_head.weight";
      if (flag.is_null() && !stated.says_tied) continue;
      write_with(changed, tensors);
      CHECK(Checkpoint(changed).settings().tied_embeddings);
      CHECK(Checkpoint(changed).notes().empty());
      std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == table; });
      write_with(changed, tensors);
      CHECK(Checkpoint(changed).names().weights(Role::embedding).front().name == "lm_head.weight");
      CHECK(logits_of(changed, ids) == expected);
    }
  }
  CHECK(heads > 5);
  CHECK(tables > 5);
}

TEST_CASE("a head in four bits is a head") {
  const TemporaryFolder folder;
  write_random_checkpoint<float>(folder.path(), tiny_shape, 3, true);
  const Checkpoint whole(folder.path());
  for (const char* name : {"lm_head.qweight", "lm_head.weight_packed", "lm_head.weight"}) {
    std::vector<Tensor> tensors;
    for (const auto& [key, tensor] : whole.tensors()) tensors.push_back(*tensor);
    const std::int32_t codes[4] = {};
    tensors.push_back({name, DType::i32, {4}, reinterpret_cast<const std::byte*>(codes), 16});
    write_with(folder.path(), tensors);
    const Checkpoint changed(folder.path());
    CHECK_FALSE(changed.settings().tied_embeddings);
    CHECK_THAT(changed.notes().at(0), Catch::Contains("lm_head"));
  }
}

TEST_CASE("layers beyond the number in config.json are noted and not read") {
  const TemporaryFolder copies;
  const fs::path changed = copies.path() / "changed";
  copy_with(fixture("models/llama-mha3h"), changed, "num_hidden_layers", 1);
  const Checkpoint checkpoint(changed);
  REQUIRE(checkpoint.notes().size() == 1);
  CHECK_THAT(checkpoint.notes().front(), Catch::Contains("hold 2 layers") && Catch::Contains("states 1"));
  CHECK(error_id([&] { load(changed, backend::Reference{}); }) == "no error");
  CHECK(Checkpoint(fixture("models/llama-mha3h")).notes().empty());
}
