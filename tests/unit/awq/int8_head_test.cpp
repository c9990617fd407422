// Folders with an 8-bit head: the values read are those written, at almost no cost.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/quantize.hpp"
#include "slm/speculative.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

const char* const table = "model.embed_tokens.weight";

/// The embedded draft in 4 bits, rounded alone.
void write_draft(const fs::path& out, bool int8_head) {
  quantize::Options options;
  options.search = false;
  options.int8_head = int8_head;
  quantize::quantize(demo_pair("draft"), out, {}, options);
}

std::vector<Token> some_text(std::size_t count) {
  std::ifstream file(source_path("examples/demo_pair/measure.py"));
  auto tokens = Tokenizer::from(demo_pair("draft")).encode(std::string(std::istreambuf_iterator<char>(file), {}));
  tokens.resize(count);
  return tokens;
}

std::vector<float> logits_of(const AnyModel& model, const std::vector<Token>& tokens) {
  Session session(model);
  const auto rows = session.forward(tokens, static_cast<int>(tokens.size()));
  return {rows.data, rows.data + rows.size()};
}

/// A copy of a folder with one tensor changed.
void write_changed(const fs::path& folder, const fs::path& out, const std::string& name, const Tensor& other) {
  const Safetensors source(folder / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const auto& [known, tensor] : source.tensors) tensors.push_back(known == name ? other : tensor);
  fs::create_directories(out);
  write_safetensors(out / "model.safetensors", tensors);
  fs::copy_file(folder / "config.json", out / "config.json");
}

/// Mean over positions of KL(p || q).
double divergence(const std::vector<float>& p, const std::vector<float>& q, std::size_t vocab) {
  const auto log_sum = [vocab](const float* row) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t i = 0; i < vocab; ++i) largest = std::max(largest, double{row[i]});
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{row[i]} - largest);
    return largest + std::log(sum);
  };
  double total = 0;
  for (std::size_t first = 0; first < p.size(); first += vocab) {
    const double of_p = log_sum(&p[first]), of_q = log_sum(&q[first]);
    for (std::size_t i = first; i < first + vocab; ++i) {
      total += std::exp(double{p[i]} - of_p) * (double{p[i]} - of_p - double{q[i]} + of_q);
    }
  }
  return total * static_cast<double>(vocab) / static_cast<double>(p.size());
}

}  // namespace

TEST_CASE("an 8-bit head has half the size of a 16-bit one, and changes predictions far less than 4 bits do") {
  const TemporaryFolder folder;
  write_draft(folder.path() / "float", false);
  write_draft(folder.path() / "int8", true);
  const Tensor half = Safetensors(folder.path() / "float/model.safetensors").tensors.at(table);
  const Tensor bytes = Safetensors(folder.path() / "int8/model.safetensors").tensors.at(table);
  CHECK(bytes.dtype == DType::u8);
  CHECK(bytes.size_bytes * 64 == half.size_bytes * 34);
  CHECK(Checkpoint(folder.path() / "int8").tensor(table, half.shape).dtype == DType::q8_0);

  const auto tokens = some_text(256);
  const auto logits = [&](const fs::path& model) { return logits_of(load(model, backend::Cpu{2}), tokens); };
  const auto before = logits(demo_pair("draft")), rounded = logits(folder.path() / "float"),
             both = logits(folder.path() / "int8");
  const std::size_t vocab = before.size() / tokens.size();
  const double of_int4 = divergence(before, rounded, vocab), of_head = divergence(rounded, both, vocab);
  CAPTURE(of_int4, of_head);
  CHECK(of_head > 0);
  CHECK(of_head < of_int4 / 50);
}

TEST_CASE("a head of 8 bits gives the logits of the same numbers in fp32") {
  const TemporaryFolder folder;
  const fs::path int8 = folder.path() / "int8", plain = folder.path() / "plain";
  write_draft(int8, true);
  const Checkpoint checkpoint(int8);
  const Tensor* head = checkpoint.find(table);
  std::vector<float> values(static_cast<std::size_t>(head->elements()));
  convert(*head, 0, head->elements(), values.data());
  write_changed(int8, plain, table,
                {table, DType::f32, head->shape, reinterpret_cast<const std::byte*>(values.data()),
                 values.size() * sizeof(float)});
  const auto tokens = some_text(20);
  const auto expected = logits_of(load(plain, backend::Reference{}), tokens);
  CHECK(logits_of(load(int8, backend::Reference{}), tokens) == expected);
  const auto found = logits_of(load(int8, backend::Cpu{2}), tokens);
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(std::abs(found[i] - expected[i]) < 2e-4f * largest);
}

TEST_CASE("speculation with a head of 8 bits gives the text of plain decoding") {
  const TemporaryFolder folder;
  write_draft(folder.path() / "int8", true);
  const AnyModel target = load(folder.path() / "int8", backend::Cpu{2});
  const Sampling sampling{.max_new_tokens = 48, .temperature = 0.0f, .ignore_end_tokens = true};
  const auto generate = [&](auto&& decoder) {
    std::vector<Token> made;
    decoder.generate(some_text(30), sampling, [&](Token token) { made.push_back(token); });
    return made;
  };
  const auto expected = generate(AutoregressiveDecoder{target});
  CHECK(expected.size() == 48);
  const AnyModel draft = load(demo_pair("draft"), backend::Cpu{2});
  CHECK(generate(SpeculativeDecoder{draft, target, {.draft_tokens = 4}}) == expected);
  CHECK(generate(SpeculativeDecoder{Lookup{}, target, {.draft_tokens = 4}}) == expected);
}

TEST_CASE("of a model with a separate head only the head has 8 bits") {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "out";
  quantize::Options options;
  options.search = false;
  options.int8_head = true;
  options.group = whole_row;
  CHECK(error_id([&] { quantize::quantize(fixture("models/llama-mha3h"), out, {}, options); }) ==
        "quantize.unsupported");  // its rows of 48 are not a multiple of 32
  CHECK_FALSE(fs::exists(out));
  quantize::quantize(fixture("models/olmo-clip-untied"), out, {}, options);
  const Checkpoint written(out);
  CHECK(written.find("lm_head.weight")->dtype == DType::q8_0);
  CHECK(written.find(table)->dtype == DType::f16);
}

TEST_CASE("bytes that are not an 8-bit head are rejected") {
  const TemporaryFolder folder;
  const fs::path int8 = folder.path() / "int8";
  write_draft(int8, true);
  const Safetensors file(int8 / "model.safetensors");
  const Tensor& stored = file.tensors.at(table);
  auto loaded = [&, index = 0](const std::string& name, const Tensor& other) mutable {
    const fs::path changed = folder.path() / std::to_string(index++);
    write_changed(int8, changed, name, other);
    return error_id([&] { load(changed, backend::Cpu{2}); });
  };
  Tensor longer = stored;
  longer.shape = {stored.shape[0] / 2, stored.shape[1] * 2};
  CHECK(loaded(table, longer) == "checkpoint.wrong-shape");
  std::vector<std::byte> bytes(stored.bytes, stored.bytes + stored.size_bytes);
  bytes[34 * 5] = std::byte{0x00}, bytes[34 * 5 + 1] = std::byte{0x7c};  // a scale that is infinite
  Tensor infinite = stored;
  infinite.bytes = bytes.data();
  CHECK(loaded(table, infinite) == "gguf.non-finite");
  Tensor norm{
      "model.norm.weight", DType::u8, {stored.shape[1]}, stored.bytes, static_cast<std::size_t>(stored.shape[1])};
  CHECK(loaded(norm.name, norm).starts_with("checkpoint.wrong-"));
}
