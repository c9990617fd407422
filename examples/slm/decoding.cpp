// The decoder that generate and chat run, made of what the command line names.
#include <memory>

#include "cli.hpp"

namespace cli {

namespace {

template <class Draft>
auto decoder_of(const DecodingOptions& options, Draft draft, slm::AnyModel target) {
  slm::Speculation speculation;
  speculation.draft_length = slm::draft_length::parse(options.draft_length);
  constexpr bool with_distribution = slm::LanguageModel<Draft> || slm::DistributionDrafter<Draft>;
  return slm::visit_rule<with_distribution>(options.rule, [&](auto rule) -> decltype(Generator::generate) {
    using Decoder = slm::SpeculativeDecoder<Draft, slm::AnyModel, decltype(rule)>;
    auto decoder = std::make_shared<Decoder>(std::move(draft), std::move(target), std::move(speculation), rule);
    return [decoder](std::span<const slm::Token> prompt, const slm::Sampling& sampling, Collector& sink) {
      return decoder->generate(prompt, sampling, sink);
    };
  });
}

}  // namespace

Generator make_generator(const DecodingOptions& options) {
  const auto loader = std::make_shared<Loader>(options.cpu);
  slm::AnyModel target = loader->load(options.target, options.backend);
  Generator made{target.info(), {}};
  if (!options.draft.empty()) {
    const std::string& backend = options.draft_backend.empty() ? options.backend : options.draft_backend;
    made.generate = decoder_of(options, loader->load(options.draft, backend), std::move(target));
  } else if (options.drafter == "ngram") {
    made.generate = decoder_of(options, slm::NgramDrafter{}, std::move(target));
  } else {
    made.generate = decoder_of(options, slm::NoDrafter{}, std::move(target));
  }
  return made;
}

OrderedJson statistics_of(const slm::Stats& stats, const Collector& sink) {
  OrderedJson json = to_json(stats);
  if (stats.finish_reason != slm::FinishReason::sink) return json;
  json["finish_reason"] = sink.stream.stopped() ? "stop_string" : "interrupted";
  return json;
}

void add_decoding_options(CLI::App& command, DecodingOptions& options) {
  command.add_option("--target", options.target, "folder of the model whose text it is")->required();
  auto* draft = command.add_option("--draft", options.draft, "folder of a small model that guesses ahead");
  command
      .add_option("--drafter", options.drafter,
                  "guess ahead without a model: ngram repeats what followed the last 4 (or 3, or 2) tokens before")
      ->check(CLI::IsMember({"ngram"}))
      ->excludes(draft);

  slm::Sampling& sampling = options.sampling;
  command.add_option("--max-new-tokens", sampling.max_new_tokens, "stop after this many tokens")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command.add_option("--stop", options.stops, "stop before this text; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--temperature", sampling.temperature, "0: the likeliest token always")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "choose among the k likeliest; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command.add_option("--top-p", sampling.top_p, "choose among the likeliest with this much probability; 1: all")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  command.add_option("--seed", sampling.seed, "of the random choices")->capture_default_str();

  command
      .add_option("--draft-length", options.draft_length, "tokens to guess ahead, or: heuristic, confidence, adaptive")
      ->capture_default_str();
  command.add_option("--rule", options.rule, "how guesses are verified: coupled, ratio, block, match")
      ->check(CLI::IsMember({"coupled", "ratio", "block", "match"}))
      ->capture_default_str();
  add_backend_options(command, options.backend, options.cpu);
  command.add_option("--draft-backend", options.draft_backend, "where the draft runs; else as --backend")
      ->check(backend_name());
}

}  // namespace cli
