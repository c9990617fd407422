// Recurrent layers: a rollback of a speculative round recomputes nothing, a longer one continues from a snapshot, and
// layers, tensors or budgets that contradict each other are rejected.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/errors.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Appends a part of a text; returns the logits of its last `rows` tokens.
std::vector<float> append(const AnyModel& model, Sequence& sequence, const std::vector<Token>& text, int count,
                          int rows) {
  Batch batch;
  const auto at = static_cast<std::size_t>(sequence.length());
  batch.add(sequence, std::span(text).subspan(at, static_cast<std::size_t>(count)),
            {.result = rows == 0 ? RowResult::nothing : RowResult::logits, .rows = rows});
  model.forward(batch);
  if (rows == 0) return {};
  const auto logits = batch.logits(0);
  return {logits.data, logits.data + logits.size()};
}

/// The last position with a computed state at or before the end of a sequence.
int resumed_from(Sequence& sequence) {
  const detail::PagedSequence& state = detail::paged(sequence);
  return state.resumable(sequence.length(), false);
}

std::string fault(const std::string& name, const Json& changes) {
  Json config = read_json_object(fixture(text("models/", name, "/config.json")));
  config.merge_patch(changes);
  return error_id([&] { read_config_json(config, "config.json"); });
}

}  // namespace

TEST_CASE("every row of a verified draft has its state, and so have the steps of a draft that was rejected before") {
  for (const std::string& name : hybrid_fixtures) {
    CAPTURE(name);
    const AnyModel model = load(fixture(text("models/", name)), backend::Cpu{1});
    const auto tokens = some_text(3, 120, model.info().vocab);
    Sequence sequence = model.sequence();
    append(model, sequence, tokens, 20, 1);
    append(model, sequence, tokens, 9, 9);
    const Sequence after = sequence.fork();
    for (int kept = 21; kept <= 29; ++kept) {
      sequence = after.fork();
      sequence.truncate(kept);
      CHECK(resumed_from(sequence) == kept);
    }
    // A draft model processes its tokens in single steps. Its first rejection recomputes, later ones do not.
    for (int round = 0; round < 4; ++round) {
      const int length = sequence.length();
      for (int i = 0; i < 5; ++i) append(model, sequence, tokens, 1, 1);
      sequence.truncate(length + 1);
      CAPTURE(round);
      CHECK((resumed_from(sequence) == length + 1) == (round > 0));
      append(model, sequence, tokens, 1, 1);
    }
  }
}

TEST_CASE("a sequence that is truncated to one position again and again is computed again once") {
  for (const std::string& name : hybrid_fixtures) {
    CAPTURE(name);
    const AnyModel model = load(fixture(text("models/", name)), backend::Cpu{1});
    const auto tokens = some_text(3, 120, model.info().vocab);
    for (const int rows : {1, 5}) {
      Sequence sequence = model.sequence();
      append(model, sequence, tokens, 70, 0);
      std::vector<float> expected;
      for (int round = 0; round < 4; ++round) {
        const auto found = append(model, sequence, tokens, rows, rows);
        if (round == 0) expected = found;
        sequence.truncate(70);
        CAPTURE(rows, round);
        CHECK(found == expected);
        CHECK((resumed_from(sequence) == 70) == (round > 0));
      }
    }
  }
}

TEST_CASE("an expected truncation finds its state, the first time too, and older states are dropped") {
  for (const std::string& name : hybrid_fixtures) {
    CAPTURE(name);
    const AnyModel model = load(fixture(text("models/", name)), backend::Cpu{1});
    const auto tokens = some_text(3, 120, model.info().vocab);
    for (const int reads : {1, 3}) {  // rows of the first step after the prompt
      CAPTURE(reads);
      Sequence sequence = model.sequence();
      append(model, sequence, tokens, 70, 0);
      sequence.expect_truncation(70);
      append(model, sequence, tokens, reads, 1);
      for (int step = 0; step < 4; ++step) append(model, sequence, tokens, 1, 1);
      sequence.truncate(72);
      CHECK(resumed_from(sequence) == 72);
      sequence.expect_truncation(72);
      for (int step = 0; step < 4; ++step) append(model, sequence, tokens, 1, 1);
      sequence.truncate(71);
      CHECK(resumed_from(sequence) < 71);
    }
  }
}

TEST_CASE("a long rollback continues from a snapshot, with the same bits and a bounded number of states") {
  for (const std::string& name : hybrid_fixtures) {
    CAPTURE(name);
    const AnyModel model = load(fixture(text("models/", name)), backend::Cpu{1});
    const int length = 400;
    const auto tokens = some_text(4, length, model.info().vocab);
    const std::vector<float> expected = [&] {
      Sequence sequence = model.sequence();
      return append(model, sequence, tokens, length, 1);
    }();
    Sequence sequence = model.sequence();
    const int distance = detail::paged(model.pool()).layout().snapshot_distance();
    for (const int kept : {399, 390, 300, 257, 70, 3}) {
      append(model, sequence, tokens, length - sequence.length(), 0);
      sequence.truncate(kept);
      CAPTURE(kept);
      CHECK(resumed_from(sequence) >= kept / distance * distance);
      CHECK(append(model, sequence, tokens, length - kept, 1) == expected);
    }
    const KvPool pool = model.pool();
    Sequence plain(pool);
    append(model, plain, tokens, 350, 0);
    for (int i = 0; i < 50; ++i) append(model, plain, tokens, 1, 1);
    CHECK(pool.used() <= pool.bytes_of(length));
  }
}

TEST_CASE("a budget bounds the states, and one that cannot hold a sequence is rejected") {
  const AnyModel model = load(fixture("models/lfm2"), backend::Cpu{1});
  const KvLayout layout = detail::paged(model.pool()).layout();
  const std::size_t state = layout.page_bytes(layout.state_kind()), page = layout.page_bytes(0);
  CHECK(error_id([&] { model.pool({.memory = 2 * state - 1}); }) == "cache.states");
  const auto tokens = some_text(5, 200, model.info().vocab);
  Sequence free_sequence = model.sequence();
  const auto expected = append(model, free_sequence, tokens, 200, 200);
  const KvPool pool = model.pool({.memory = 4 * page + 2 * state});
  Sequence sequence(pool);
  const auto width = static_cast<std::size_t>(model.info().vocab);
  for (const int kept : {190, 150, 64, 1}) {  // no memory for snapshots: recomputed
    append(model, sequence, tokens, 198 - sequence.length(), 8);
    const auto found = append(model, sequence, tokens, 2, 2);
    CHECK(std::memcmp(found.data(), expected.data() + 198 * width, 2 * width * sizeof(float)) == 0);
    CHECK(pool.used() <= pool.budget());
    sequence.truncate(kept);
  }
  CHECK(error_id([&] {
          Sequence other(pool);
          append(model, sequence, tokens, 200 - sequence.length(), 1);
          append(model, other, tokens, 100, 1);
        }) == "cache.full");
}

TEST_CASE("a model without attention has states alone") {
  const TemporaryFolder folder;
  Json config = read_json_object(fixture("models/lfm2/config.json"));
  config.merge_patch({{"num_hidden_layers", 2}, {"layer_types", {"conv", "conv"}}});
  std::ofstream(folder.path() / "config.json") << config;
  std::filesystem::copy_file(fixture("models/lfm2/model.safetensors"), folder.path() / "model.safetensors");
  const AnyModel model = load(folder.path(), backend::Cpu{1});
  const auto tokens = some_text(6, 300, model.info().vocab);
  Sequence whole = model.sequence(), parts = model.sequence();
  const auto expected = append(model, whole, tokens, 300, 1);
  append(model, parts, tokens, 130, 1);
  append(model, parts, tokens, 90, 90);
  Sequence fork = parts.fork();
  for (Sequence* const sequence : {&parts, &fork}) {
    sequence->truncate(sequence == &fork ? 70 : 200);
    CHECK(append(model, *sequence, tokens, 300 - sequence->length(), 1) == expected);
  }
}

TEST_CASE("4-bit projections of convolutions and of gated attention have the logits of their values") {
  const TemporaryFolder folder;
  const QuantizedForm form{.layout = Int4Layout::packed_rows, .group = 8, .symmetric = true};
  for (const std::string name : {"lfm2", "qwen35-mha"}) {
    const Checkpoint source(fixture("models/" + name));
    quantized(source, form).write(folder.path() / name / "codes");
    dequantized(source, form).write(folder.path() / name / "values");
    const auto logits_of = [&](const char* kind) {
      const AnyModel model = load(folder.path() / name / kind, backend::Reference{});
      Sequence sequence = model.sequence();
      return append(model, sequence, some_text(7, 30, model.info().vocab), 30, 30);
    };
    const auto found = logits_of("codes"), expected = logits_of("values");
    CAPTURE(name);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-3f);
  }
}

TEST_CASE("contradictory layers are rejected by name") {
  CHECK(fault("lfm2", Json::object()) == "no error");
  CHECK(fault("lfm2", {{"layer_types", {"conv"}}}) == "json.bad-field");
  CHECK(fault("lfm2", {{"layer_types", {"conv", "conv", "mamba", "conv", "full_attention", "conv"}}}) ==
        "json.bad-field");
  CHECK(fault("lfm2", {{"layer_types", nullptr}, {"full_attn_idxs", {6}}}) == "json.bad-field");
  CHECK(fault("lfm2", {{"conv_L_cache", 0}}) == "json.bad-field");
  CHECK(fault("lfm2", {{"intermediate_size", 1 << 22}, {"block_ffn_dim_multiplier", 999}}) == "config.unsound");
  CHECK(fault("lfm2moe", {{"num_experts_per_tok", 9}}) == "config.contradictory");
  CHECK(fault("lfm2moe", {{"num_dense_layers", 5}}) == "config.unsupported");
  CHECK(fault("qwen3next", {{"linear_num_value_heads", 3}}) == "config.unsound");
  CHECK(fault("granitehybrid", {{"mamba_n_heads", 9}}) == "config.contradictory");
  CHECK(fault("granitehybrid", {{"position_embedding_type", "alibi"}}) == "config.unsupported");
  CHECK(fault("granitehybrid", {{"time_step_limit", {0.001, 0.1}}}) == "config.unsupported");
  CHECK(fault("granitehybrid", {{"time_step_limit", {0, "Infinity"}}}) == "no error");
  CHECK(fault("bamba", {{"attn_layer_indices", {4}}}) == "json.bad-field");
  CHECK(fault("bamba", {{"mamba_n_heads", 9}}) == "config.contradictory");
  CHECK(fault("bamba", {{"mamba_n_groups", 3}}) == "config.unsound");
  CHECK(fault("falcon-h1", {{"mlp_multipliers", {1}}}) == "json.bad-field");
  CHECK(fault("falcon-h1", {{"key_multiplier", 0}}) == "json.bad-field");
  CHECK(fault("falcon-h1", {{"ssm_multipliers", {1, 1, 1, 1, "1"}}}) == "json.bad-field");
  CHECK(fault("falcon-h1", {{"projectors_bias", true}}) == "config.unsupported");
  CHECK(fault("nemotron-h", {{"layers_block_type", {"linear_attention", "window"}}}) == "json.bad-field");
  CHECK(fault("nemotron-h-moe", {{"topk_group", 1}}) == "config.contradictory");
  CHECK(fault("nemotron-h-moe", {{"n_group", 3}}) == "config.contradictory");
  CHECK(fault("nemotron-h-moe", {{"moe_latent_size", 16}}) == "config.unsupported");
  CHECK(fault("nemotron-h", {{"layers_block_type", nullptr}, {"hybrid_override_pattern", "M-X"}}) == "json.bad-field");
  CHECK(fault("nemotron-h", {{"num_hidden_layers", 5}}) == "config.contradictory");
  // Layers whose kind contradicts the tensors.
  Json config = read_json_object(fixture("models/lfm2/config.json"));
  config["layer_types"][0] = "full_attention";
  const Checkpoint sound(fixture("models/lfm2"));
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : sound.tensors()) tensors.push_back(*tensor);
  const Checkpoint wrong("wrong", read_config_json(config, "config.json"), {}, tensors);
  CHECK(error_id([&] {
          for (const TensorName& name : wrong.names().all()) wrong.tensor(name.name, name.shape);
        }) == "checkpoint.missing-tensor");
}
