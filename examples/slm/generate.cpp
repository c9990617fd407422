// slm generate: continues a prompt, plainly or speculatively.
#include <iostream>
#include <memory>

#include "cli.hpp"

namespace cli {

namespace {

struct GenerateOptions {
  std::string target, draft, drafter;
  std::string prompt, prompt_file;
  slm::Sampling sampling{.max_new_tokens = 128, .temperature = 0.0f};
  std::string lookahead = "4";
  std::string rule = "coupled";
  std::string backend = "cpu", draft_backend;
  int threads = 0;
  bool json = false;
};

/// Runs a decoder made of this drafter and the named rule.
template <class Draft>
slm::Stats run(const GenerateOptions& options, Draft draft, slm::AnyModel target, const std::vector<slm::Token>& prompt,
               Collector& sink) {
  slm::Speculation speculation;
  speculation.lookahead = slm::lookahead::parse(options.lookahead);
  constexpr bool with_distribution = slm::LanguageModel<Draft> || slm::DistributionDrafter<Draft>;
  return slm::visit_rule<with_distribution>(options.rule, [&](auto rule) {
    slm::SpeculativeDecoder decoder(std::move(draft), std::move(target), std::move(speculation), rule);
    return decoder.generate(prompt, options.sampling, sink);
  });
}

void generate(const GenerateOptions& options) {
  const std::string text = options.prompt_file.empty() ? options.prompt : read_file(options.prompt_file);
  Loader loader(options.threads);
  slm::AnyModel target = loader.load(options.target, options.backend);
  const auto tokenizer = slm::Tokenizer::from(options.target);
  const std::vector<slm::Token> prompt = tokenizer.encode(text);

  std::string collected;
  std::vector<slm::Token> ids;
  const auto write = [&](std::string_view piece) { options.json ? void(collected += piece) : print(piece); };
  Collector sink{slm::TextStream(tokenizer, write), ids};

  slm::Stats stats;
  if (!options.draft.empty()) {
    const std::string& backend = options.draft_backend.empty() ? options.backend : options.draft_backend;
    stats = run(options, loader.load(options.draft, backend), std::move(target), prompt, sink);
  } else if (options.drafter == "ngram") {
    stats = run(options, slm::NgramDrafter{}, std::move(target), prompt, sink);
  } else {
    stats = run(options, slm::NoDrafter{}, std::move(target), prompt, sink);
  }

  if (options.json) {
    print_json({{"ids", ids}, {"text", collected}, {"prompt_ids", prompt}, {"statistics", to_json(stats)}});
  } else {
    print("\n");
    std::cerr << '\n' << stats;
  }
}

}  // namespace

void add_generate(CLI::App& program) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App& command = *program.add_subcommand("generate", "Continue a prompt; text to stdout, statistics to stderr");
  command.add_option("--target", options->target, "folder of the model whose text it is")->required();
  auto* draft = command.add_option("--draft", options->draft, "folder of a small model that guesses ahead");
  command.add_option("--drafter", options->drafter, "guess ahead without a model: ngram")
      ->check(CLI::IsMember({"ngram"}))
      ->excludes(draft);

  auto& prompt = *command.add_option_group("prompt", "one of");
  prompt.add_option("--prompt", options->prompt, "the text to continue");
  prompt.add_option("--prompt-file", options->prompt_file, "a file that holds it");
  prompt.require_option(1);

  slm::Sampling& sampling = options->sampling;
  command.add_option("--max-new-tokens", sampling.max_new_tokens, "stop after this many tokens")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
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

  command.add_option("--lookahead", options->lookahead, "tokens to guess ahead, or: heuristic, confidence, adaptive")
      ->capture_default_str();
  command.add_option("--rule", options->rule, "how guesses are verified: coupled, ratio, block, match")
      ->check(CLI::IsMember({"coupled", "ratio", "block", "match"}))
      ->capture_default_str();
  add_backend_options(command, options->backend, options->threads);
  command.add_option("--draft-backend", options->draft_backend, "where the draft runs; else as --backend")
      ->check(backend_name());
  command.add_flag("--json", options->json, "print one JSON object: ids, text, prompt_ids, statistics");
  command.callback([options] { generate(*options); });
}

}  // namespace cli
