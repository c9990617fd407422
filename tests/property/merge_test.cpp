// A merged checkpoint contains the sums of the weights, rounded once, and has the results of the model with the
// adapter.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/merge.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

using Row = std::vector<float>;

const char* const names[] = {"llama-mha3h",
                             "llama3-gqa-scaled-tied",
                             "llama-sharded-bf16",
                             "mistral-swa8",
                             "qwen2-bias-tied",
                             "qwen3-qknorm-headdim",
                             "phi-partial",
                             "phi3-swa7",
                             "gpt2",
                             "opt-preln",
                             "opt-postln-proj",
                             "mpt-alibi-4h",
                             "mpt-foundry-gqa-qkgn-swa",
                             "olmo-clip-untied",
                             "mosaicgpt-qkln-alibi",
                             "gemma2",
                             "glm4",
                             "falcon-7b",
                             "internlm2",
                             "lfm2-conv4-bias",
                             "qwen35-text"};

/// Half the distance of adjacent numbers from 1 to 2, the largest relative error of rounding.
double unit_of(DType type) { return type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8; }

/// A fixture with its matrices in another type.
void write_model(const fs::path& folder, const Checkpoint& checkpoint, DType type) {
  std::vector<std::vector<std::byte>> data;
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    Row values(static_cast<std::size_t>(tensor->elements()));
    convert(*tensor, 0, tensor->elements(), values.data());
    std::vector<std::byte>& bytes = data.emplace_back(values.size() * bytes_of(type));
    const auto round = [&]<class Element>(Element) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto rounded = from_float<Element>(values[i]);
        std::memcpy(bytes.data() + i * sizeof rounded, &rounded, sizeof rounded);
      }
    };
    if (type == DType::f32) round(float{});
    if (type == DType::f16) round(half_t{});
    if (type == DType::bf16) round(bfloat16_t{});
    tensors.push_back({name, type, tensor->shape, nullptr, bytes.size()});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = data[i].data();
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors);
  fs::copy_file(checkpoint.folder() / "config.json", folder / "config.json");
}

/// The last row's logits.
Row logits(const AnyModel& model, const AdapterRef& adapter) {
  Sequence sequence = model.sequence();
  sequence.adapt(adapter);
  Batch batch;
  batch.add(sequence, some_text(3, std::min(20, model.info().context), model.info().vocab),
            {.result = RowResult::logits});
  model.forward(batch);
  return Row(batch.logits(0).data, batch.logits(0).data + batch.logits(0).size());
}

/// The largest difference over the largest logit.
double distance(const Row& found, const Row& expected) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(double{found[i]} - double{expected[i]}));
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return most / largest;
}

/// The difference of a merged tensor from W + scale * B A in double, relative to the rounding bound.
double worst_share(const Tensor& merged, const Tensor& base, const TrainedModule* module) {
  const std::int64_t columns = base.shape.back();
  double worst = 0;
  for (std::int64_t i = 0; i < base.elements(); ++i) {
    float before = 0, after = 0;
    convert(base, i, 1, &before);
    convert(merged, i, 1, &after);
    double sum = 0, size = 0;
    for (std::int64_t j = 0; module != nullptr && j < module->rank; ++j) {
      const bool turned = module->transposed || module->embedding;
      const std::int64_t o = turned ? i % columns : i / columns, k = turned ? i / columns : i % columns;
      const double product = module->scale * module->b[static_cast<std::size_t>(o * module->rank + j)] *
                             module->a[static_cast<std::size_t>(j * module->in + k)];
      sum += product;
      size += std::abs(product);
    }
    const double exact = before + sum;
    // One rounding to the stored type; before it, one of each product, factor and sum in fp32.
    const double ranks = module == nullptr ? 0 : static_cast<double>(module->rank);
    const double tiny = merged.dtype == DType::f16 ? 0x1p-25 : 0x1p-140;
    const double allowed =
        std::abs(exact) * unit_of(merged.dtype) + (ranks + 3) * 0x1p-24 * (size + std::abs(exact)) + tiny;
    worst = std::max(worst, std::abs(after - exact) / (module == nullptr ? tiny : allowed));
  }
  return worst;
}

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("in every family and type a merged model has the sums of the weights and the logits of the adapted one") {
  std::uint64_t seed = 0;
  for (const char* name : names) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const TemporaryFolder folder;
      write_model(folder.path() / "model", Checkpoint(fixture(text("models/", name))), type);
      const Checkpoint checkpoint(folder.path() / "model");
      const auto trained = write_random_adapter(folder.path() / "adapter", checkpoint,
                                                {.seed = ++seed, .size = 0.5f, .by_root = seed % 2 == 0});
      const fs::path out = folder.path() / "merged";
      const MergeReport report = merge_adapter(checkpoint.folder(), folder.path() / "adapter", out);
      CAPTURE(name, name_of(type));
      CHECK(report.changed == static_cast<int>(trained.size()));
      CHECK(report.untied == checkpoint.settings().tied_embeddings);

      const Checkpoint merged(out);
      CHECK(!merged.settings().tied_embeddings);
      const std::string prefix{checkpoint.family().names.prefix};
      const Tensor* table = checkpoint.find(checkpoint.names().weights(Role::embedding).front().name);
      for (const auto& [tensor_name, tensor] : merged.tensors()) {
        const std::string module = tensor_name.substr(0, tensor_name.rfind('.'));
        const auto found = std::find_if(trained.begin(), trained.end(), [&](const TrainedModule& one) {
          return tensor_name.ends_with(".weight") && (one.name == module || one.name == prefix + module);
        });
        const Tensor* stored = checkpoint.find(tensor_name);
        const Tensor& base = stored == nullptr ? *table : *stored;
        CAPTURE(tensor_name);
        CHECK(tensor->dtype == type);
        const TrainedModule* change = found == trained.end() ? nullptr : &*found;
        CHECK(worst_share(*tensor, base, change) <= 1);
        CHECK((change == nullptr || worst_share(base, base, change) > 1));
      }

      const AnyModel model = load(checkpoint.folder(), backend::Reference{});
      const Row expected = logits(model, load_adapter(folder.path() / "adapter", model));
      const double error = distance(logits(load(out, backend::Reference{}), nullptr), expected);
      // A recurrent state adds the rounding of the weights up over the positions.
      const double units = checkpoint.config().mixer.kind == MixerKind::none ? 8 : 16;
      CHECK(error < (type == DType::f32 ? 1e-5 : units * unit_of(type)));
    }
  }
}

TEST_CASE("a merged folder keeps unchanged tensors, other files and the tied table") {
  const fs::path model = demo_pair("target");
  const Checkpoint checkpoint(model);
  const TemporaryFolder folder;
  write_random_adapter(folder.path() / "adapter", checkpoint, {.rank = 2, .only = [](const std::string& module) {
                                                                 return module.find("q_proj") != std::string::npos;
                                                               }});
  std::vector<double> shares;
  const MergeReport report = merge_adapter(model, folder.path() / "adapter", folder.path() / "out",
                                           [&](double share) { shares.push_back(share); });
  CHECK(report.changed == checkpoint.config().layers);
  CHECK(!report.untied);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  const Checkpoint merged(folder.path() / "out");
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const Tensor* found = merged.find(name);
    REQUIRE(found != nullptr);
    const bool same = std::memcmp(found->bytes, tensor->bytes, tensor->size_bytes) == 0;
    CHECK(same == (name.find("q_proj") == std::string::npos));
  }
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    CHECK(contents(folder.path() / "out" / file) == contents(model / file));
  }
  CHECK(!fs::exists(folder.path() / "out.partial"));
}

TEST_CASE("a model that cannot be merged is rejected, and no partial output remains") {
  const fs::path model = fixture("models/llama-mha3h");
  const TemporaryFolder folder;
  const fs::path adapter = folder.path() / "adapter", out = folder.path() / "out";
  write_random_adapter(adapter, Checkpoint(model), {});
  const auto refused = [&](const fs::path& base, const fs::path& change) {
    const std::string id = error_id([&] { merge_adapter(base, change, out); });
    CHECK(!fs::exists(out));
    CHECK(!fs::exists(out.string() + ".partial"));
    return id;
  };
  CHECK(refused(fixture("gguf/llama-mha3h.gguf"), adapter) == "merge.base");
  CHECK(refused(demo_pair("target-int4"), adapter) == "merge.base");
  CHECK(refused(fixture("models/gpt2"), adapter) == "adapter.unknown-module");
  CHECK(refused(model, folder.path() / "absent") == "io.unreadable");

  // Weights whose sums exceed F16.
  write_model(folder.path() / "half", Checkpoint(model), DType::f16);
  write_random_adapter(folder.path() / "large", Checkpoint(model), {.size = 1e6f});
  CHECK(refused(folder.path() / "half", folder.path() / "large") == "merge.overflow");

  for (const char* taken : {"out", "out.partial"}) {
    fs::create_directory(folder.path() / taken);
    CHECK(error_id([&] { merge_adapter(model, adapter, out); }) == "merge.output-exists");
    CHECK(fs::is_empty(folder.path() / taken));
    fs::remove(folder.path() / taken);
  }
  fs::create_directory_symlink(folder.path() / "nowhere", out);
  CHECK(error_id([&] { merge_adapter(model, adapter, out); }) == "merge.output-exists");
  fs::remove(out);
  CHECK(error_id([&] { merge_adapter(model, adapter, folder.path() / "adapter" / "adapter_config.json" / "out"); }) ==
        "io.unwritable");
  CHECK(merge_adapter(model, adapter, out).changed > 0);
}
