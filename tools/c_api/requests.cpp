// The C interface: requests, generators, and embeddings.
#include <cmath>
#include <exception>
#include <vector>

#include "handles.hpp"
#include "slm/core/cancel.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/lookup.hpp"
#include "slm/decode/speculative.hpp"

struct slm_generator {
  slm_generator(const slm_model& model, const slm_drafting& drafting)
      : decoder(c_api::drafter_of(drafting), model.model, c_api::speculation_of(drafting)) {}

  slm::SpeculativeDecoder<> decoder;
  std::atomic<bool> taken{false};
  std::mutex mutex;
  slm::CancelSource cancel;  // of the call in progress, guarded by the mutex
};

namespace c_api {

slm::Pooling pooling_of(std::int32_t pooling) {
  if (pooling == SLM_POOLING_MEAN) return slm::Pooling::mean;
  if (pooling == SLM_POOLING_LAST) return slm::Pooling::last;
  throw misuse("c.value", slm::text("expected one of SLM_POOLING_..., found ", pooling), "Set pooling to one of them");
}

slm::Request request_of(const slm_request* pointer) {
  required(pointer, "request");
  const slm_request given = read_struct(pointer, sizeof(slm_request), "slm_request");
  const auto prompt = array(given.prompt, given.prompt_count, "prompt");
  const auto stops = array(given.stop_tokens, given.stop_count, "stop_tokens");
  slm::Request request{
      .prompt = {prompt.begin(), prompt.end()},
      .sampling = {.max_new_tokens = given.max_new_tokens == 0 ? 128 : given.max_new_tokens,
                   .temperature = given.temperature,
                   .top_k = given.top_k,
                   .top_p = given.top_p == 0 ? 1 : given.top_p,
                   .min_p = given.min_p,
                   .repetition_penalty = given.repetition_penalty == 0 ? 1 : given.repetition_penalty,
                   .presence_penalty = given.presence_penalty,
                   .frequency_penalty = given.frequency_penalty,
                   .seed = given.seed,
                   .stop_tokens = {stops.begin(), stops.end()},
                   .ignore_end_tokens = given.ignore_end_tokens != 0},
      .logprobs = {.raw = given.logprobs != 0 || given.top_logprobs != 0, .top = given.top_logprobs},
      .tenant = given.tenant,
  };
  if (given.constraint != nullptr) request.constraint = given.constraint->constraint;
  if (given.adapter != nullptr) request.adapter = given.adapter->adapter;
  if (given.draft_adapter != nullptr) request.draft_adapter = given.draft_adapter->adapter;
  if (given.pooling != SLM_POOLING_NONE) request.pooling = pooling_of(given.pooling);
  return request;
}

slm_drafting drafting_of(const slm_drafting* given) { return read_struct(given, sizeof(slm_drafting), "slm_drafting"); }

slm::Drafter drafter_of(const slm_drafting& drafting) {
  slm::Drafter drafter;
  if (drafting.no_forced_text == 0) drafter.add(slm::ForcedText{});
  if (drafting.no_lookup == 0) drafter.add(slm::Lookup{});
  if (drafting.model != nullptr) drafter.add(drafting.model->model);
  return drafter;
}

slm::Speculation speculation_of(const slm_drafting& drafting) {
  slm::Speculation speculation;
  if (drafting.draft_tokens != 0) speculation.draft_tokens = drafting.draft_tokens;
  return speculation;
}

void write_stats(slm_stats* to, const slm::Stats& stats) {
  static_assert(static_cast<int>(slm::FinishReason::complete) == SLM_FINISH_COMPLETE &&
                static_cast<int>(slm::FinishReason::sink) == SLM_FINISH_CALLBACK);
  write_struct(to,
               slm_stats{.size = 0,
                         .finish_reason = static_cast<std::int32_t>(stats.finish_reason),
                         .reserved = 0,
                         .prompt_tokens = stats.prompt_tokens,
                         .reused_tokens = stats.reused_tokens,
                         .new_tokens = stats.emitted,
                         .steps = stats.target_forwards,
                         .drafted = stats.drafted,
                         .accepted = stats.accepted,
                         .prompt_seconds = stats.prefill_seconds(),
                         .total_seconds = stats.total_seconds},
               sizeof(slm_stats), "slm_stats");
}

void copy_top(std::span<const slm::TokenLogprob> from, std::vector<slm_logprob>& to) {
  to.clear();
  for (const slm::TokenLogprob& one : from) to.push_back({one.token, 0, one.logprob});
}

slm_generated generated(slm::Token token, std::int64_t position, bool drafted, double logprob,
                        std::span<const slm_logprob> top) {
  return {.size = sizeof(slm_generated),
          .token = token,
          .drafted = drafted,
          .position = position,
          .logprob = logprob,
          .top = top.data(),
          .top_count = top.size()};
}

}  // namespace c_api

using c_api::guarded;
using c_api::required;

slm_status slm_request_recommended(const slm_model* model, slm_request* request) {
  return guarded([&] {
    const slm::SuggestedSampling& by = required(model, "model").model.info().sampling;
    slm_request changed = c_api::read_struct(&required(request, "request"), sizeof(slm_request), "slm_request");
    changed.temperature = by.temperature.value_or(changed.temperature);
    changed.top_k = by.top_k.value_or(changed.top_k);
    changed.top_p = by.top_p.value_or(changed.top_p);
    changed.min_p = by.min_p.value_or(changed.min_p);
    changed.repetition_penalty = by.repetition_penalty.value_or(changed.repetition_penalty);
    c_api::write_struct(request, changed, sizeof(slm_request), "slm_request");
  });
}

slm_status slm_generator_create(const slm_model* model, const slm_drafting* drafting, slm_generator** out) {
  return guarded([&] {
    required(out, "out");
    *out = new slm_generator(required(model, "model"), c_api::drafting_of(drafting));
  });
}

slm_status slm_generate(slm_generator* generator, const slm_request* request, slm_on_token on_token, void* user,
                        slm_stats* stats) {
  return guarded([&] {
    slm_generator& of = required(generator, "generator");
    const c_api::Claim claim(of.taken, "slm_generator");
    slm::Request asked = c_api::request_of(request);
    if (stats != nullptr) c_api::write_stats(stats, {});  // checks its size before anything is computed
    {
      const std::lock_guard lock(of.mutex);
      of.cancel = {};
      asked.cancel = of.cancel.get_token();
    }
    std::vector<slm_logprob> top;
    const slm::Stats found = of.decoder.generate(asked, [&](const slm::GeneratedToken& token) {
      if (on_token == nullptr) return true;
      c_api::copy_top(token.top, top);
      const slm_generated passed = c_api::generated(token.token, token.position, token.drafted, token.logprob, top);
      return on_token(user, &passed) == 0;
    });
    if (stats != nullptr) c_api::write_stats(stats, found);
  });
}

slm_status slm_generator_cancel(slm_generator* generator) {
  return guarded([&] {
    slm_generator& of = required(generator, "generator");
    const std::lock_guard lock(of.mutex);
    of.cancel.request_stop();
  });
}

void slm_generator_free(slm_generator* generator) { delete generator; }

slm_status slm_embed(const slm_model* model, const slm_token* tokens, size_t count, int32_t pooling, float** out,
                     size_t* width) {
  return guarded([&] {
    const auto prompt = c_api::array(tokens, count, "tokens");
    std::vector<float> embedding;
    const slm::Request request{
        .prompt = {prompt.begin(), prompt.end()},
        .pooling = c_api::pooling_of(pooling),
        .embedded = [&](std::span<const float> values) { embedding.assign(values.begin(), values.end()); }};
    slm::SpeculativeDecoder<> decoder(slm::Drafter{}, required(model, "model").model);
    decoder.generate(request, [](slm::Token) { return true; });
    c_api::give(std::span<const float>(embedding), out, width);
  });
}
