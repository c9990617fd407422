// slm generate: continues a prompt, with or without speculation.
#include <iostream>
#include <memory>

#include "cli.hpp"

namespace cli {

namespace {

struct GenerateOptions {
  DecodingOptions decoding;
  std::string prompt, prompt_file, prompts, resume, save;
  bool json = false, sequential = false;
};

void generate(const GenerateOptions& options) {
  if (!options.prompts.empty()) return generate_lines(options.decoding, options.prompts, options.sequential);
  const std::string text = options.prompt_file.empty() ? options.prompt : read_file(options.prompt_file);
  const Generator generator = make_generator(options.decoding);
  const auto tokenizer = slm::Tokenizer::from(slm::path_of(options.decoding.target));
  const std::vector<slm::Token> prompt =
      options.resume.empty() ? tokenizer.encode(text) : generator.resume(options.resume);

  std::string collected;
  std::vector<slm::Token> ids;
  const auto write = [&](std::string_view piece) { options.json ? void(collected += piece) : print(piece); };
  Collector sink{slm::TextStream(tokenizer, prompt, write, options.decoding.stops), ids};
  const slm::Stats stats = generator.generate({.prompt = prompt,
                                               .sampling = generator.sampling,
                                               .constraint = generator.constraint,
                                               .adapter = generator.adapter},
                                              sink);
  if (!options.save.empty()) generator.save(options.save);

  if (options.json) {
    print_json(
        {{"ids", ids}, {"text", collected}, {"prompt_ids", prompt}, {"statistics", statistics_of(stats, sink.stream)}});
  } else {
    print("\n");
    std::cerr << '\n' << stats;
  }
}

}  // namespace

void add_generate(CLI::App& program) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App& command = *program.add_subcommand("generate", "Continue a prompt; text on stdout, statistics on stderr");
  auto& prompt = *command.add_option_group("prompt", "one of");
  prompt.add_option("--prompt", options->prompt, "the text to continue");
  prompt.add_option("--prompt-file", options->prompt_file, "file with the text to continue");
  auto* prompts = prompt.add_option("--prompts", options->prompts, "file with one JSON request per line");
  prompt.add_option("--resume", options->resume, "file written by --save: continue its text");
  prompt.require_option(1);
  add_decoding_options(command, options->decoding);
  add_constraint_options(command, options->decoding.constraint);
  auto* json =
      command.add_flag("--json", options->json, "print one JSON object per answer: ids, text, prompt_ids, statistics");
  prompts->needs(json);
  command.add_flag("--sequential", options->sequential, "answer requests one by one instead of in a batch")
      ->needs(prompts);
  command.add_option("--save", options->save, "write prompt, answer and KV cache to a file for --resume")
      ->excludes(prompts);
  command.callback([options] { generate(*options); });
}

}  // namespace cli
