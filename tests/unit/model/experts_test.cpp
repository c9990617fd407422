// Mixtures of experts: the choice of experts, which weights a step reads, and both forms of stored experts.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/mixture.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/formats/gguf_encode.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/mxfp4_matrix.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/model.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<std::pair<int, float>> chosen(const Routing& routing, std::vector<float> logits) {
  std::vector<Choice> choices(static_cast<std::size_t>(routing.chosen));
  choose_experts(routing, logits, choices);
  std::vector<std::pair<int, float>> pairs;
  for (const Choice& choice : choices) pairs.emplace_back(choice.expert, choice.weight);
  return pairs;
}

/// A tensor in own pages, which can be made inaccessible.
class Pages {
 public:
  explicit Pages(const Tensor& source) : tensor(source) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    length_ = (source.size_bytes + page - 1) / page * page;
    base_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(base_ != MAP_FAILED);
    std::memcpy(base_, source.bytes, source.size_bytes);
    tensor.bytes = static_cast<const std::byte*>(base_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(base_, length_); }

  void close() { REQUIRE(mprotect(base_, length_, PROT_NONE) == 0); }
  /// Changes all values, or changes them back.
  void change() {
    for (std::size_t i = 0; i < tensor.size_bytes / sizeof(float); ++i) floats()[i] = -floats()[i];
  }
  float* floats() { return static_cast<float*>(base_); }

  Tensor tensor;

 private:
  void* base_ = nullptr;
  std::size_t length_ = 0;
};

template <class Format, class B>
std::vector<float> logits_of(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<Token>& tokens,
                             int rows = 1, int piece = 64) {
  const ModelConfig shape = checkpoint->config();
  Session session(Model<Dynamic, Format, B>(Dynamic{shape}, std::move(checkpoint), B{}));
  std::vector<float> all;
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(piece)) {
    const auto part =
        std::span(tokens).subspan(at, std::min<std::size_t>(static_cast<std::size_t>(piece), tokens.size() - at));
    const auto logits = session.forward(part, rows == 1 ? 1 : static_cast<int>(part.size()));
    all.insert(all.end(), logits.data, logits.data + logits.size());
  }
  return all;
}

std::shared_ptr<const Checkpoint> in_memory(ModelDescription model, std::vector<Tensor> tensors) {
  return std::make_shared<const Checkpoint>("memory", std::move(model), QuantizationSettings{}, std::move(tensors));
}

}  // namespace

TEST_CASE("a router chooses the best experts, of equal ones those with the lower index") {
  const Routing two{.experts = 4, .chosen = 2, .settings = {.normalizes = true}};
  CHECK(chosen(two, {1, 1, 1, 1}) == std::vector<std::pair<int, float>>{{0, 0.5f}, {1, 0.5f}});
  CHECK(chosen(two, {0, 1, 1, 1}) == std::vector<std::pair<int, float>>{{1, 0.5f}, {2, 0.5f}});
  CHECK(chosen(two, {0, 1, 0, 1}) == std::vector<std::pair<int, float>>{{1, 0.5f}, {3, 0.5f}});
  const auto uneven = chosen({.experts = 3, .chosen = 1}, {0, 5, 0});  // not divided by the sum
  CHECK(uneven[0].first == 1);
  CHECK(uneven[0].second == Approx(std::exp(5.0) / (std::exp(5.0) + 2)));
  const float bias[] = {0, 0, 10, 0};
  const auto biased = chosen({.experts = 4, .chosen = 1, .choice_bias = bias}, {0, 0, 0, 0});
  CHECK(biased == std::vector<std::pair<int, float>>{{2, 0.25f}});  // the bias is no part of the weight
  const auto sigmoid =
      chosen({.experts = 2, .chosen = 2, .scores = RouterScores::sigmoid, .settings = {.scale = 4}}, {0, 0});
  CHECK(sigmoid == std::vector<std::pair<int, float>>{{0, 2.0f}, {1, 2.0f}});
  const Routing grouped{
      .experts = 4, .chosen = 1, .scores = RouterScores::sigmoid, .settings = {.groups = 2, .kept_groups = 1}};
  CHECK(chosen(grouped, {3, -9, 1, 1})[0].first == 2);  // the group with the best pair, not with the best expert
  CHECK(chosen(grouped, {1, 1, 1, 1})[0].first == 0);
  const Routing by_best{.experts = 4, .chosen = 1, .settings = {.groups = 2, .kept_groups = 1, .by_best = true}};
  CHECK(chosen(by_best, {3, -9, 1, 1})[0].first == 0);  // the group with the best expert
  // One after the other: each weight is a share among the logits left that are within a part of 0.1 of the largest.
  const Routing masked{.experts = 4, .chosen = 2, .scores = RouterScores::masked, .settings = {.closeness = 0.1f}};
  CHECK(chosen(masked, {1, 8, 4, 2}) == std::vector<std::pair<int, float>>{{1, 1.0f}, {2, 1.0f}});
  const auto close = chosen(masked, {10, 10.5f, 1, 9.8f});  // 10.5, 10 and 9.8; then 10 and 9.8
  CHECK(close[0].first == 0);
  CHECK(close[0].second == Approx(1 / (1 + std::exp(-0.2))));
  CHECK(close[1].first == 1);
  CHECK(close[1].second == Approx(1 / (1 + std::exp(-0.5) + std::exp(-0.7))));
  CHECK(chosen(masked, {-5, -5, -5, -5})[1].first == 1);
  const float factors[] = {1, 3, 1, 1};
  CHECK(chosen({.experts = 4, .chosen = 1, .factors = factors}, {0, 0.1f, 0, 0})[0].second ==
        Approx(3 * chosen({.experts = 4, .chosen = 1}, {0, 0.1f, 0, 0})[0].second));
  const float none = std::numeric_limits<float>::quiet_NaN();
  const auto unsound = chosen(two, {none, none, none, none});
  CHECK((unsound[0].first == 0 && unsound[1].first == 1));
}

TEMPLATE_TEST_CASE("a step reads the experts that it chose and no others", "", backend::Reference, backend::Cpu) {
  const auto folder = fixture("models/qwen3moe");
  const Checkpoint source(folder);
  std::deque<Pages> pages;
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : source.tensors()) {
    tensors.push_back(pages.emplace_back(*tensor).tensor);
  }
  const auto checkpoint = in_memory(read_model_description(folder), tensors);
  const ModelConfig shape = checkpoint->config();
  Session session(Model<Dynamic, Fp32, TestType>(Dynamic{shape}, checkpoint, TestType{}));
  const Token token = 5;
  const auto run = [&] {
    session.truncate(0);
    const auto logits = session.forward({&token, 1}, 1);
    return std::vector<float>(logits.data, logits.data + logits.size());
  };
  const std::vector<float> expected = run();
  std::set<std::string> used;
  std::vector<Pages*> unused;
  for (Pages& page : pages) {
    const std::string& name = page.tensor.name;
    if (name.find(".experts.") == std::string::npos) continue;
    page.change();
    const bool counts = run() != expected;
    page.change();
    if (counts) {
      used.insert(name.substr(0, name.rfind('.', name.rfind('.') - 1)));  // the expert
    } else {
      unused.push_back(&page);
    }
  }
  CHECK(used.size() == static_cast<std::size_t>(shape.layers * shape.mixture.chosen));
  CHECK(unused.size() == 3 * static_cast<std::size_t>(shape.layers * (shape.mixture.experts - shape.mixture.chosen)));
  for (Pages* page : unused) page->close();  // a read would end the test
  CHECK(run() == expected);
}

TEST_CASE("experts in one tensor are the same model as single experts") {
  const auto folder = fixture("models/qwen3moe");
  const auto source = std::make_shared<const Checkpoint>(folder);
  const MixtureConfig& mixture = source->config().mixture;
  std::vector<Tensor> tensors;
  std::deque<std::vector<float>> data;
  for (const auto& [name, tensor] : source->tensors()) {
    if (name.find(".experts.") == std::string::npos) tensors.push_back(*tensor);
  }
  for (int l = 0; l < source->config().layers; ++l) {
    for (const Role role : {Role::experts_up, Role::experts_down}) {
      std::vector<float>& all = data.emplace_back();
      for (const TensorName& name : source->names().weights(role, l)) {
        const Tensor& tensor = source->tensor(name.name, name.shape);
        const std::size_t start = all.size();
        all.resize(start + static_cast<std::size_t>(tensor.elements()));
        convert(tensor, 0, tensor.elements(), all.data() + start);
      }
      const bool up = role == Role::experts_up;
      const std::int64_t hidden = source->config().hidden, ffn = mixture.ffn;
      tensors.push_back({text("model.layers.", l, ".mlp.experts.", up ? "gate_up_proj" : "down_proj"),
                         DType::f32,
                         {mixture.experts, up ? 2 * ffn : hidden, up ? hidden : ffn},
                         reinterpret_cast<const std::byte*>(all.data()),
                         all.size() * sizeof(float)});
    }
  }
  const std::vector<Token> tokens{3, 14, 15, 92, 65, 35};
  CHECK(logits_of<Fp32, backend::Cpu>(in_memory(read_model_description(folder), tensors), tokens) ==
        logits_of<Fp32, backend::Cpu>(source, tokens));
  ModelDescription other = read_model_description(folder);
  other.config.mixture.experts = 16;
  CHECK(error_id([&] { in_memory(other, tensors); }) == "checkpoint.wrong-shape");
}

TEST_CASE("experts in blocks and in bfloat16: the same bits for any cut, near the reference backend") {
  const DType type = GENERATE(DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k, DType::bf16);
  ModelDescription model = read_model_description(fixture("models/qwen3moe"));
  const bool wide = is_blocked(type) && values_of_block(type) == 256;
  model.config.hidden = wide ? 256 : 64;
  model.config.ffn = model.config.mixture.ffn = wide ? 256 : 32;
  const TensorNames names(model.config, model.settings, model.family->names);
  std::deque<std::vector<std::byte>> data;
  std::vector<Tensor> tensors;
  std::uint64_t state = 7;
  for (const TensorName& name : names.all()) {
    std::int64_t count = 1;
    for (const std::int64_t extent : name.shape) count *= extent;
    std::vector<float> values(static_cast<std::size_t>(count), 1.0f);
    if (name.shape.size() == 2) {
      for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = (static_cast<float>(state >> 40) * 0x1p-24f - 0.5f) * 0.4f;
      }
    }
    const bool of_expert = name.name.find(".experts.") != std::string::npos;
    const DType stored = of_expert ? type : DType::f32;
    std::vector<std::byte>& bytes = data.emplace_back();
    if (is_blocked(stored)) {
      const std::size_t block = bytes_of(stored), size = static_cast<std::size_t>(values_of_block(stored));
      bytes.resize(values.size() / size * block);
      for (std::size_t b = 0; b < values.size() / size; ++b) encode(stored, &values[b * size], &bytes[b * block]);
    } else if (stored == DType::bf16) {
      bytes.resize(values.size() * sizeof(bfloat16_t));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto rounded = from_float<bfloat16_t>(values[i]);
        std::memcpy(&bytes[i * sizeof rounded], &rounded, sizeof rounded);
      }
    } else {
      bytes.resize(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    tensors.push_back({name.name, stored, name.shape, bytes.data(), bytes.size()});
  }
  const auto checkpoint = in_memory(model, tensors);
  std::vector<Token> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % model.config.vocab);
  const auto whole = logits_of<AnyFormat, backend::Cpu>(checkpoint, tokens, 40);
  for (const int piece : {1, 7, 16}) CHECK(logits_of<AnyFormat, backend::Cpu>(checkpoint, tokens, 40, piece) == whole);
  const auto exact = logits_of<AnyFormat, backend::Reference>(checkpoint, tokens, 40);
  float largest = 0, worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    worst = std::max(worst, std::abs(exact[i] - whole[i]));
  }
  CAPTURE(name_of(type), worst, largest);
  CHECK(worst < 2e-4f * largest);
}

TEST_CASE("MXFP4 of folders becomes that of GGUF, and unsound tensors of it are rejected") {
  const std::uint8_t folder_codes[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
                                       0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};
  const std::uint8_t block[] = {0x7d, 0xf0, 0xe1, 0xd2, 0xc3, 0xb4, 0xa5, 0x96, 0x87,
                                0x78, 0x69, 0x5a, 0x4b, 0x3c, 0x2d, 0x1e, 0x0f};
  const auto bytes_of_codes = reinterpret_cast<const std::byte*>(folder_codes);
  const Tensor codes{"codes", DType::u8, {1, 1, 16}, bytes_of_codes, 16};
  const Tensor scale{"scale", DType::u8, {1, 1}, reinterpret_cast<const std::byte*>(block), 1};
  const Tensor matrix = detail::mxfp4_matrix(codes, scale, 1, 32, "here");
  REQUIRE(matrix.size_bytes == sizeof block);
  CHECK(std::memcmp(matrix.bytes, block, sizeof block) == 0);
  CHECK(error_id([&] { detail::mxfp4_matrix(codes, scale, 1, 16, "here"); }) == "quant.wrong-shape");

  const auto folder = fixture("models/gpt-oss-mxfp4");
  const Checkpoint source(folder);
  const std::vector<std::byte> no_scales(4096, std::byte{255});
  const auto fault = [&](const std::string& part, const auto& change) {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : source.tensors()) {
      Tensor copy = *tensor;
      if (name.find("layers.1.mlp.experts.2." + part) == std::string::npos || change(copy)) tensors.push_back(copy);
    }
    return error_id(
        [&] { logits_of<AnyFormat, backend::Cpu>(in_memory(read_model_description(folder), tensors), {1}); });
  };
  CHECK(fault("down", [](Tensor&) { return true; }) == "no error");
  CHECK(fault("down_proj.weight_scales", [](Tensor&) { return false; }) == "quant.incomplete-layer");
  CHECK(fault("down_proj.weight_blocks", [](Tensor&) { return false; }) == "checkpoint.missing-tensor");
  CHECK(fault("gate_up_proj.weight_scales", [&](Tensor& scales) {
          scales.bytes = no_scales.data();
          return true;
        }) == "quant.non-finite");
  CHECK(fault("gate_up_proj.weight_blocks", [](Tensor& blocks) {
          blocks.shape = {32, 4, 16};
          return true;
        }) == "quant.wrong-shape");
}
