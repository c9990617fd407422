// The decoder of generate and chat, constructed from the command line.
#include <fstream>
#include <memory>

#include "cli.hpp"
#include "drafting.hpp"
#include "slm/adapters.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/io/write_file.hpp"

namespace cli {

namespace {

void add_decoder(Generator& made, const DecodingOptions& options, slm::Drafter draft, slm::AnyModel target) {
  slm::Speculation speculation;
  if (!options.draft_length.empty()) speculation.draft_length = slm::draft_length::parse(options.draft_length);
  speculation.overlap = options.models.draft_is_apart();
  slm::visit_rule(options.rule, [&](auto rule) {
    using Decoder = slm::SpeculativeDecoder<decltype(rule)>;
    auto decoder = std::make_shared<Decoder>(std::move(draft), std::move(target), std::move(speculation), rule);
    made.generate = [decoder](const slm::Request& request, Collector& sink) {
      return decoder->generate(request, sink);
    };
    made.generate_all = [decoder](std::span<const slm::Request> requests, const Generator::Sink& sink) {
      return decoder->generate(requests, sink);
    };
    made.save = [decoder](const std::string& path) {
      slm::Sequence text = decoder->sequence().fork();
      slm::Batch batch;  // the answer's last token is not in the sequence yet
      batch.add(text, decoder->history().subspan(static_cast<std::size_t>(text.length())));
      decoder->target().forward(batch);
      slm::write_file_whole(slm::path_of(path), [&](std::ostream& file) { text.save(file); });
    };
    made.resume = [decoder, adapter = made.adapter](const std::string& path) {
      std::ifstream file(slm::path_of(path), std::ios::binary);
      if (!file) {
        throw slm::Error("cli.unreadable-file", slm::text("'", path, "' could not be read"),
                         "Check the path and its permissions");
      }
      slm::Sequence text = slm::Sequence::load(file, decoder->target().pool(), 0, adapter);
      std::vector<slm::Token> tokens(text.tokens().begin(), text.tokens().end());
      decoder->resume(std::move(text));
      return tokens;
    };
  });
}

OrderedJson to_json(const slm::Stats& stats) {
  OrderedJson json;
  json["finish_reason"] = slm::name_of(stats.finish_reason);
  json["rule"] = stats.rule;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["reused_tokens"] = stats.reused_tokens;
  json["new_tokens"] = stats.emitted;
  json["tokens_per_second"] = stats.tokens_per_second();
  json["tokens_per_second_with_prompt"] = stats.tokens_per_second_with_prefill();
  json["acceptance_rate"] = stats.acceptance_rate();
  json["evaluated_acceptance_rate"] = stats.evaluated_acceptance_rate();
  json["tokens_per_target_step"] = stats.tokens_per_target_step();
  json["target_steps"] = stats.rounds;
  json["plain_steps"] = stats.plain_steps;
  json["fully_accepted_rounds"] = stats.full_rounds;
  json["partly_accepted_rounds"] = stats.partial_rounds;
  json["rejected_rounds"] = stats.zero_rounds;
  json["drafted"] = stats.drafted;
  json["drafted_by_model"] = stats.drafted_by_model;
  json["forced"] = stats.forced;
  json["forced_share"] = stats.forced_share();
  json["evaluated"] = stats.evaluated;
  json["accepted"] = stats.accepted;
  json["drafted_at_depth"] = stats.drafted_at_depth;
  json["accepted_at_depth"] = stats.accepted_at_depth;
  json["emitted_histogram"] = stats.emitted_histogram;
  json["mean_draft_length"] = stats.mean_draft_length();
  json["draft_forwards"] = stats.draft_forwards;
  json["drafts_ahead"] = stats.drafts_ahead;
  json["drafts_ahead_held"] = stats.drafts_ahead_held;
  json["seconds"] = {{"total", stats.total_seconds},     {"prompt", stats.prefill_seconds()},
                     {"target", stats.verify_seconds},   {"draft", stats.draft_seconds},
                     {"choosing", stats.sample_seconds}, {"decoding", stats.decode_seconds()}};
  json["draft_bytes_per_step"] = stats.draft_bytes_per_step;
  json["target_bytes_per_step"] = stats.target_bytes_per_step;
  json["draft_faults"] = stats.draft_faults;
  json["common_tokens"] = stats.common_tokens;
  json["unmappable_tokens"] = stats.unmappable_tokens;
  json["disabled_reason"] = stats.disabled_reason;
  return json;
}

}  // namespace

Generator make_generator(const DecodingOptions& options) {
  slm::ConstraintRef constraint = make_constraint(options.constraint, options.target);
  Loader loader(options.models);
  slm::AnyModel target = loader.load(options.target);
  slm::Sampling sampling = options.sampling;
  if (options.generation_config) sampling = with(sampling, target.info().sampling);
  Generator made{.target = target.info(), .sampling = with(sampling, options.named)};
  if (!options.adapter.empty()) made.adapter = slm::load_adapter(slm::path_of(options.adapter), target);
  made.constraint = std::move(constraint);
  slm::Drafter drafter = make_drafter(options.drafting, loader, target.info(), options.target);
  add_decoder(made, options, std::move(drafter), std::move(target));
  return made;
}

OrderedJson statistics_of(const slm::Stats& stats, const slm::TextStream& stream) {
  OrderedJson json = to_json(stats);
  if (stats.finish_reason != slm::FinishReason::sink) return json;
  json["finish_reason"] = stream.stopped() ? "stop_string" : "interrupted";
  return json;
}

void add_decoding_options(CLI::App& command, DecodingOptions& options) {
  command.add_option("--target", options.target, "target model (folder or GGUF file)")->required();
  command.add_option("--adapter", options.adapter, "LoRA adapter of the target (PEFT folder)");
  auto* draft = add_drafter_options(command, options.drafting);

  slm::Sampling& sampling = options.sampling;
  command.add_option("--max-new-tokens", sampling.max_new_tokens, "maximum number of new tokens")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command.add_option("--stop", options.stops, "stop string, excluded from the answer; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  slm::SuggestedSampling& named = options.named;
  command.add_option("--temperature", named.temperature, "sampling temperature; 0, the default: greedy")
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--top-k", named.top_k, "sample from the k most likely tokens; 0, the default: all")
      ->check(CLI::Range(0, 1 << 30));
  command
      .add_option("--top-p", named.top_p,
                  "sample from the most likely tokens with this total probability; 1, the default: all")
      ->check(CLI::Range(1e-9, 1.0));
  command
      .add_option("--min-p", named.min_p,
                  "exclude tokens less likely than this share of the most likely one; default 0")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--repetition-penalty", named.repetition_penalty,
                  "repetition penalty; above 1 makes tokens of the text less likely; 1, the default: off")
      ->check(CLI::Range(1e-3, 1e3));
  command.add_flag("--generation-config", options.generation_config,
                   "take these five from the model's generation_config.json unless an option sets them");
  add_whole_number(command, "--seed", sampling.seed, "seed of the random draws: 0 to 2^64 - 1");

  command
      .add_option("--draft-length", options.draft_length,
                  "tokens to draft per round, or: adaptive, heuristic, confidence")
      ->default_str("adaptive, or 4 with the rules ratio and block");
  command.add_option("--rule", options.rule, "verification rule: coupled, ratio, block, match")
      ->check(CLI::IsMember({"coupled", "ratio", "block", "match"}))
      ->capture_default_str();
  add_model_options(command, options.models);
  add_draft_options(command, options.models, *draft);
}

}  // namespace cli
