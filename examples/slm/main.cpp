// slm: the command line program.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "cli.hpp"
#include "tools/cli/bench.hpp"
#include "tools/cli/ranks.hpp"
#include "tools/cli/system.hpp"

namespace {

constexpr int failure = 1;
constexpr int wrong_usage = 2;

int fail(const slm::Error& error) {
  std::cerr << "slm: " << error.what() << '\n';
  return failure;
}

int run(int count, char** words) try {
  std::vector<std::string> arguments = cli::begin_process(count, words);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  const std::string command = arguments.empty() ? "" : arguments[0];
  cli::join_ranks(command == "bench" && arguments.size() > 1 ? slm::text(command, " ", arguments[1]) : command);
  if (cli::rank() > 0) {
    cli::help_first_rank();
    return 0;
  }
  CLI::App program{"Small language models with lossless speculative decoding", "slm"};
  program.require_subcommand(1);
  program.allow_windows_style_options(false);  // "/models/x" is a path on every system
  program.set_version_flag("--version", slm::text(SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH));
  cli::add_generate(program);
  cli::add_chat(program);
  cli::add_logits(program);
  cli::add_embed(program);
  cli::add_tokenize(program);
  cli::add_template(program);
  cli::add_grammar(program);
  cli::add_info(program);
#if SLM_HAS_SERVER
  cli::add_serve(program);
#endif
  cli::add_demo(program);
  cli::add_perplexity(program);
  cli::add_quantize(program);
  cli::add_merge(program);
#if SLM_HAS_BENCH
  cli::add_bench(program);
#endif

  if (const auto unknown = cli::unknown_command(program, arguments)) {
    fail(*unknown);
    return wrong_usage;
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as the parser takes them
    program.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    const bool answered = program.exit(error) == 0;  // --help, --version
    if (answered) cli::print("");
    return answered ? 0 : wrong_usage;
  }
  return 0;
} catch (const slm::Error& error) {
  return fail(error);
} catch (const std::bad_alloc&) {
  return fail({"cli.out-of-memory", "out of memory", "Lower --context, use a smaller model, or free memory"});
} catch (const std::exception& error) {
  return fail({"cli.unexpected", error.what(), "Report it with the command line"});
}

}  // namespace

int main(int count, char** words) { return cli::leave_ranks(run(count, words)); }
