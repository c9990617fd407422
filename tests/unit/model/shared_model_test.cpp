// One model, many threads: each decodes the same as one thread alone, on one device and on several.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int threads = 4;

struct Pair {
  AnyModel draft, target;
};

/// A thread's work: a plain and a speculative decoder with separate prompts, and a text that forks.
std::vector<Token> texts_of(const Pair& models, int thread) {
  std::vector<Token> all;
  const auto sink = [&all](Token token) { all.push_back(token); };
  const auto prompt = [&](int length) {
    std::vector<Token> tokens;
    for (int i = 0; i < length; ++i)
      tokens.push_back(static_cast<Token>((i * 37 + thread * 11 + 5) % models.target.info().vocab));
    return tokens;
  };
  AutoregressiveDecoder plain(models.target);
  SpeculativeDecoder speculative(models.draft, models.target, {.draft_tokens = 3});
  for (const float temperature : {0.0f, 0.8f}) {
    const Sampling sampling{.max_new_tokens = 8,
                            .temperature = temperature,
                            .seed = static_cast<std::uint64_t>(thread),
                            .ignore_end_tokens = true};
    plain.generate(prompt(70), sampling, sink);  // more than a page
    speculative.generate(prompt(20), sampling, sink);
  }
  Sequence first = models.target.sequence();
  Batch batch;
  batch.add(first, prompt(30));
  models.target.forward(batch);
  Sequence second = first.fork();
  batch.clear();
  batch.add(first, prompt(1), {.result = RowResult::logits});
  batch.add(second, prompt(2), {.result = RowResult::logits});
  models.target.forward(batch);
  for (int i = 0; i < 2; ++i) {
    const float* const row = batch.logits(i).row(0);
    all.push_back(static_cast<Token>(std::max_element(row, row + models.target.info().vocab) - row));
  }
  return all;
}

/// Each thread decodes with the given models. Returns the number of texts that differ from those of one thread.
template <class ModelsOf>
int differing_texts(ModelsOf models_of) {
  std::vector<std::vector<Token>> alone, together(threads);
  for (int i = 0; i < threads; ++i) alone.push_back(texts_of(models_of(i), i));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] { together[static_cast<std::size_t>(i)] = texts_of(models_of(i), i); });
  }
  for (std::thread& thread : running) thread.join();
  int differing = 0;
  for (std::size_t i = 0; i < threads; ++i) {
    CHECK(alone[i].size() == 34);
    differing += alone[i] != together[i];
  }
  return differing;
}

Pair load_pair(const std::string& kind, const backend::Cpu& device) {
  return {load(demo_pair("draft" + kind), device), load(demo_pair("target" + kind), device)};
}

}  // namespace

TEST_CASE("threads with separate decoders share one model and one device") {
  for (const char* kind : {"", "-int4"}) {
    const Pair models = load_pair(kind, backend::Cpu{2});
    CAPTURE(kind);
    CHECK(differing_texts([&](int) { return models; }) == 0);
  }
}

TEST_CASE("models on two devices serve threads concurrently") {
  const Pair models[] = {load_pair("", backend::Cpu{2}), load_pair("", backend::Cpu{2})};
  CHECK(differing_texts([&](int thread) { return models[thread % 2]; }) == 0);
}

TEST_CASE("threads that request sequences of a new model at the same time share one pool") {
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Cpu{1});
  std::vector<Sequence> sequences(threads);
  std::vector<std::thread> running;
  for (Sequence& sequence : sequences) {
    running.emplace_back([&] {
      sequence = model.sequence();
      Batch batch;
      batch.add(sequence, std::vector<Token>{1, 2, 3});
      model.forward(batch);
    });
  }
  for (std::thread& thread : running) thread.join();
  for (Sequence& sequence : sequences) {
    CHECK(sequence.length() == 3);
    CHECK(detail::paged(sequence).pool == detail::paged(sequences[0]).pool);
  }
}

TEST_CASE("threads whose texts have common prefixes share pages of a pool that is too small for all") {
  const AnyModel model = load(fixture("models/llama-mha3h"), backend::Cpu{1});
  const std::size_t page = model.pool().bytes_of(1);
  const auto text_of = [&](int text) {  // texts 0 and 1 differ from the third page on, 2 and 3 likewise
    std::vector<Token> tokens;
    for (int i = 0; i < 200; ++i)
      tokens.push_back(static_cast<Token>((i * 37 + (i < 128 ? text / 2 : text) * 11 + 5) % model.info().vocab));
    return tokens;
  };
  const auto answer = [&](Sequence sequence, int text, int rolled_back) {
    const std::vector<Token> tokens = text_of(text);
    Batch batch;
    batch.add(sequence, tokens);
    model.forward(batch);
    sequence.truncate(rolled_back);
    batch.clear();
    batch.add(sequence, std::span(tokens).subspan(static_cast<std::size_t>(rolled_back)),
              {.result = RowResult::logits});
    model.forward(batch);
    const auto row = batch.logits(0);
    return std::vector<float>(row.data, row.data + row.size());
  };
  const KvPool pool = model.pool({.memory = 4 * threads * page, .share_prefixes = true});
  std::vector<int> differing(threads);
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      for (int i = 0; i < 8; ++i) {
        const int text = thread + i, rolled_back = 199 - 17 * i;
        const auto alone = answer(model.sequence(), text, rolled_back);
        differing[static_cast<std::size_t>(thread)] += answer(Sequence(pool), text, rolled_back) != alone;
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  CHECK(differing == std::vector<int>(threads));
  CHECK(pool.prefix_stats().hits > 0);
  CHECK(pool.prefix_stats().evictions > 0);
  CHECK(pool.used() == pool.idle());
}
