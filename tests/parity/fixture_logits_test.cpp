// Every fixture on both backends, in one prefill, in chunks and token by token, against logits of upstream's modeling
// code in float64.
#include <catch2/catch.hpp>
#include <cmath>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "support/golden.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/newer_fixtures.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The tolerance covers float32 rounding here, and float32 RoPE tables and softmax upstream (observed: at most 4e-5
/// between two upstream precisions, with |logits| up to 10).
constexpr double tolerance = 1e-4;

/// Of newer fixtures: parts of the largest logit.
constexpr double reference_tolerance = 1e-5;

int argmax(const float* row, std::int64_t width) { return static_cast<int>(std::max_element(row, row + width) - row); }

/// The rows of a golden case that begin at `first`: |difference| of the given logits, and argmax of every row.
void check_rows(const GoldenCase& golden, View<const float, 2> logits, int first, double allowed = tolerance) {
  double worst = 0;
  for (std::size_t i = 0; i < golden.rows.size(); ++i) {
    const std::int64_t row = golden.rows[i] - first;
    if (row < 0 || row >= logits.extent(0)) continue;
    for (std::int64_t v = 0; v < logits.extent(1); ++v) {
      const double difference = std::abs(golden.logits[i][static_cast<std::size_t>(v)] - logits(row, v));
      if (!(difference <= worst)) worst = difference;
    }
  }
  CHECK(worst < allowed);
  for (std::int64_t r = 0; r < logits.extent(0); ++r) {
    REQUIRE(argmax(logits.row(r), logits.extent(1)) == golden.argmax[static_cast<std::size_t>(first + r)]);
  }
}

/// Dynamic only: another test compares compile-time configs bit for bit.
template <class B>
void compare(const std::filesystem::path& path, const std::vector<GoldenCase>& goldens, B device,
             const LoadOptions& options = {}, double allowed = tolerance) {
  Session model(load(path, device, options));
  const RopeScaling scaling = Checkpoint(path).settings().rope_scaling;
  const bool longrope = scaling.kind == RopeScaling::Kind::longrope;
  int cases = 0;
  for (const GoldenCase& golden : goldens) {
    const int size = static_cast<int>(golden.ids.size());
    if (size > model.info().context) continue;  // upstream's dynamic scaling begins there
    CAPTURE(size);
    model.truncate(0);
    check_rows(golden, model.forward(golden.ids, size), 0, allowed);
    // In chunks. Upstream computed all rows of a prompt beyond LongRoPE's original context with the second table; if
    // the text grows beyond it, only the later rows use it.
    const int comparable =
        longrope && size > static_cast<int>(scaling.original_context) ? static_cast<int>(scaling.original_context) : 0;
    for (const int piece : {1, 2, 3, 5, 7, 11, 16, 23}) {
      CAPTURE(piece);
      model.truncate(0);
      for (int first = 0; first < size; first += piece) {
        const int count = std::min(piece, size - first);
        const auto logits = model.forward(
            std::span(golden.ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), count);
        const int skip = std::clamp(comparable - first, 0, count);
        if (skip < count) check_rows(golden, logits.slice(skip, count - skip), first + skip, allowed);
      }
    }
    ++cases;
  }
  CHECK(cases > 0);
}

/// Compares on both backends, with tolerances relative to the largest logit.
void compare_scaled(const std::filesystem::path& model, const std::vector<GoldenCase>& goldens) {
  const double largest = largest_logit(goldens);
  SECTION("reference") { compare(model, goldens, backend::Reference{}, {}, reference_tolerance * largest); }
  SECTION("cpu") { compare(model, goldens, backend::Cpu{}, {}, tolerance * largest); }
}

}  // namespace

TEST_CASE("fixture models give the expected logits") {
  const char* name =
      GENERATE("llama-mha3h", "llama3-gqa-scaled-tied", "llama-sharded-bf16", "mistral-swa8", "olmo-tied",
               "qwen2-bias-tied", "qwen3-qknorm-headdim", "phi-partial", "phi3-swa7", "phi3-longrope", "gpt2",
               "opt-preln", "mpt-alibi-4h", "mpt-foundry-3b-like", "mosaicgpt-qkln-alibi",
               // Created here; their logits come from the formulas in float64 instead of upstream's code.
               "llama-bias", "olmo-clip-untied", "qwen2-swa-from-layer1", "opt-postln-proj", "mpt-alibi-3h",
               "mpt-foundry-mqa", "mpt-foundry-qkln-alibi6h", "mosaicgpt-wpe-bias-clip", "mistral-long", "qwen2-long",
               "phi-qknorm-gqa", "mpt-foundry-gqa-qkgn-swa");
  CAPTURE(name);
  const auto folder = fixture(text("models/", name));
  SECTION("reference") { compare(folder, read_golden(folder), backend::Reference{}); }
  SECTION("cpu") { compare(folder, read_golden(folder), backend::Cpu{}); }
}

TEST_CASE("fixture models of newer families give the expected logits") {
  const std::string name = GENERATE(from_range(newer_fixtures));
  CAPTURE(name);
  const auto folder = fixture(text("models/", name));
  compare_scaled(folder, read_golden(folder));
}

TEST_CASE("fixture models with recurrent layers give the expected logits") {
  const std::string name = GENERATE(from_range(hybrid_fixtures));
  CAPTURE(name);
  const auto folder = fixture(text("models/", name));
  compare_scaled(folder, read_golden(folder));
}

TEST_CASE("GGUF files of llama.cpp's converter from fixture models give the expected logits") {
  const auto [file, model] = GENERATE(table<std::string, std::string>({
      {"llama-mha3h", "llama-mha3h"},
      {"split-00001-of-00003", "llama3-gqa-scaled-tied"},
      {"empty-first-00001-of-00004", "llama3-gqa-scaled-tied"},
      {"qwen2-bias-tied", "qwen2-bias-tied"},
      {"qwen3-qknorm-headdim", "qwen3-qknorm-headdim"},
      {"olmo-tied", "olmo-tied"},
      {"phi-partial", "phi-partial"},
      {"phi3-swa7", "phi3-swa7"},
      {"phi3-longrope", "phi3-longrope"},
      {"gpt2", "gpt2"},
      {"mpt-alibi-4h", "mpt-alibi-4h"},
      {"mpt-foundry-3b-like", "mpt-foundry-3b-like"},
  }));
  CAPTURE(file);
  const auto path = fixture(text("gguf/", file, ".gguf"));
  const auto goldens = read_golden(fixture(text("models/", model)));
  SECTION("reference") { compare(path, goldens, backend::Reference{}); }
  SECTION("cpu") { compare(path, goldens, backend::Cpu{}); }
}

TEST_CASE("GGUF files of newer families give the expected logits") {
  const std::string name = GENERATE(
      "apertus", "arcee", "cohere2", "ernie4_5", "exaone4-1.2b", "exaone4-32b", "falcon-7b", "gemma", "gemma2",
      "gemma3-270m", "gemma3-linear", "gemma3n", "gemma4-e2b", "gemma4-moe", "glm4", "gptneox-parallel",
      "gptneox-serial", "granite", "hunyuan-dense", "internlm2", "llama-linear", "llama-yarn", "minicpm", "ministral3",
      "nemotron", "olmo2", "olmo3", "phi4-mini", "qwen2-yarn", "lfm2", "lfm2moe", "qwen35", "qwen35-mha", "qwen35moe",
      "qwen3next", "granitehybrid", "granitehybrid-moe", "falcon-h1", "nemotron-h", "smollm3", "stablelm-1.6b",
      "stablelm-12b", "starcoder2-full", "seed_oss", "qwen3moe", "mixtral", "olmoe", "qwen2moe", "granitemoe",
      "granitemoeshared", "ernie4.5-moe", "gpt-oss", "deepseek-v3", "glm4-moe-lite", "deepseek-v2-lite");
  CAPTURE(name);
  const auto path = fixture(text("gguf/", name, ".gguf"));
  compare_scaled(path, read_golden(fixture(text("models/", name))));
}

TEST_CASE("an older GGUF file of latent attention gives the expected logits") {
  compare_scaled(fixture("gguf/deepseek-v2-lite-kv-b.gguf"), read_golden(fixture("models/deepseek-v2-lite")));
}

TEST_CASE("experts in MXFP4 give the expected logits, from a GGUF file and from a folder") {
  const auto path = fixture(GENERATE("gguf/gpt-oss-mxfp4.gguf", "models/gpt-oss-mxfp4"));
  CAPTURE(path);
  const auto goldens = read_golden(fixture("models/gpt-oss"));
  const double largest = largest_logit(goldens);
  SECTION("reference") { compare(path, goldens, backend::Reference{}, {}, reference_tolerance * largest); }
  SECTION("cpu, dequantized") {
    compare(path, goldens, backend::Cpu{}, {.weights = WeightType::f32}, tolerance * largest);
  }
  SECTION("cpu") {  // activations in 16 bits
    for (const backend::Isa isa : backend::available_isas())
      compare(path, goldens, backend::Cpu{backend::CpuOptions{.isa = isa}}, {}, 4e-4 * largest);
  }
}

TEST_CASE("a GGUF file of every block type gives the logits of its dequantized weights") {
  const auto path = fixture("gguf/all-types.gguf");
  const auto goldens = read_golden_file(fixture("gguf/all-types.golden.json"));
  SECTION("reference") { compare(path, goldens, backend::Reference{}); }
  SECTION("cpu, dequantized") { compare(path, goldens, backend::Cpu{}, {.weights = WeightType::f32}); }
  SECTION("cpu") {  // 16-bit activations may change logits, here up to 4.2, by 1e-4 of the largest
    for (const backend::Isa isa : backend::available_isas()) {
      compare(path, goldens, backend::Cpu{backend::CpuOptions{.isa = isa}}, {}, 4.2e-4);
    }
  }
}

TEST_CASE("a GGUF file of every block type with a table of values gives the logits of its dequantized weights") {
  const auto path = fixture("gguf/table-types.gguf");
  const auto goldens = read_golden_file(fixture("gguf/table-types.golden.json"));
  SECTION("reference") { compare(path, goldens, backend::Reference{}); }
  SECTION("cpu, multiplied out") { compare(path, goldens, backend::Cpu{}, {.weights = WeightType::f32}); }
  SECTION("cpu") {  // see above; the largest logit is 5.3
    for (const backend::Isa isa : backend::available_isas()) {
      compare(path, goldens, backend::Cpu{backend::CpuOptions{.isa = isa}}, {}, 5.3e-4);
    }
  }
}
