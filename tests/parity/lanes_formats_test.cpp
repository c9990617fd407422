// Formats of the KV cache on emulated lanes of both widths.
#include <array>
#include <sstream>

#include "slm/backend/gpu/lanes.hpp"
#include "support/errors.hpp"
#include "support/gpu_batches.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Lanes32;
using backend::Lanes64;

namespace {

const std::vector<KvFormat> formats(Lanes32::kv_formats.begin(), Lanes32::kv_formats.end());

template <class Device>
std::vector<float> logits_of(const AnyModel& model, const std::vector<Token>& tokens) {
  Session text(model);
  return copy_of(text.forward(tokens, static_cast<int>(tokens.size())));
}

std::vector<Token> some_tokens(int count, int vocab) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i * 7919 % vocab);
  return tokens;
}

/// The largest difference of logits from those of Reference with a cache of the same format.
template <class Device>
double difference(const std::filesystem::path& folder, KvFormat format) {
  const LoadOptions options{.cache_format = format};
  const AnyModel model = load(folder, Device{}, options), plain = load(folder, backend::Reference{}, options);
  const auto tokens = some_tokens(std::min(90, plain.info().context), plain.info().vocab);
  const auto found = logits_of<Device>(model, tokens), expected = logits_of<Device>(plain, tokens);
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double one = std::abs(double{found[i]} - double{expected[i]});
    if (!(one <= largest)) largest = one;
  }
  return largest;
}

}  // namespace

TEST_CASE("on lanes a row's bits do not depend on other sequences, for any formats of their caches") {
  const std::string name = GENERATE("llama-mha3h", "qwen3-qknorm-headdim");
  CAPTURE(name);
  check_batches(fixture("models/" + name), Lanes32{}, Lanes32{1}, 5, 7, formats);
  check_batches(fixture("models/" + name), Lanes64{1}, Lanes64{}, 2, 8, {KvFormat::int8});
}

TEST_CASE("on lanes models give the logits of Reference with a cache of the same format") {
  const std::string name = GENERATE("llama3-gqa-scaled-tied", "phi-partial", "gpt2");
  const KvFormat format = GENERATE(from_range(formats));
  CAPTURE(name, std::string(name_of(format)));
  const auto folder = fixture("models/" + name);
  // In addition to attention's own rounding, a value close to a tie is stored as its other neighbour.
  CHECK(difference<Lanes32>(folder, format) < 2 * logit_tolerance(Checkpoint(folder)));
  CHECK(difference<Lanes64>(folder, format) < 2 * logit_tolerance(Checkpoint(folder)));
}

TEST_CASE("on lanes speculative text is plain text in every format of the cache") {
  const KvFormat format = GENERATE(from_range(formats));
  const LoadOptions options{.cache_format = format};
  check_speculation_of([&] { return load(fixture("models/llama-mha3h"), Lanes32{}, options); },
                       [&] { return load(fixture("models/llama3-gqa-scaled-tied"), Lanes32{}, options); });
}

TEST_CASE("a sequence saved on lanes continues in the same format, and lanes reject f32") {
  const auto folder = fixture("models/llama-mha3h");
  const AnyModel model = load(folder, Lanes32{});
  const auto text = some_tokens(20, model.info().vocab);
  for (const KvFormat format : formats) {
    Sequence first(model.pool({.format = format}));
    Batch batch;
    batch.add(first, text);
    model.forward(batch);
    std::stringstream file;
    first.save(file);
    Sequence second = Sequence::load(file, model.pool({.format = format}));
    const auto next = [&](Sequence& sequence) {
      batch.clear();
      batch.add(sequence, std::span(text).first(1), {.result = RowResult::logits});
      model.forward(batch);
      return copy_of(batch.logits(0));
    };
    CHECK(next(first) == next(second));
  }
  CHECK(error_id([&] { model.pool({.format = KvFormat::f32}); }) == "cache.format");
}
