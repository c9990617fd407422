// The sources of drafts, constructed from the command line.
#include "drafting.hpp"

#include <algorithm>
#include <string_view>

#include "cli.hpp"
#include "slm/core/error.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/lookup.hpp"

namespace cli {

CLI::Option* add_drafter_options(CLI::App& command, DraftingOptions& options) {
  auto* draft = command.add_option("--draft", options.draft, "draft model (folder or GGUF file)");
  command
      .add_option("--drafter", options.drafters,
                  "sources of drafts: lookup (in the text, in finished answers and in --lookup-file), model (--draft), "
                  "or none; default: all that is there")
      ->delimiter(',')
      ->check(CLI::IsMember({"lookup", "model", "none"}))
      ->type_name("LIST")
      ->take_all();
  command.add_option("--lookup-file", options.lookup_file, "additional UTF-8 text for lookup");
  return draft;
}

slm::Drafter make_drafter(const DraftingOptions& options, Loader& loader, const slm::ModelInfo& target,
                          const std::string& tokenizer) {
  const auto named = [&](std::string_view name) {
    return std::find(options.drafters.begin(), options.drafters.end(), name) != options.drafters.end();
  };
  const bool all = options.drafters.empty();
  if (named("none") && (named("lookup") || named("model"))) {
    throw slm::Error("cli.drafter-none", "--drafter: expected none or other sources, found both",
                     "Leave out none, or all others");
  }
  if (named("model") && options.draft.empty()) {
    throw slm::Error("cli.no-draft", "--drafter: expected a draft model for the source model, found none",
                     "Name it with --draft");
  }
  slm::Drafter drafter;
  if (!named("none")) drafter.add(slm::ForcedText{});
  if (all || named("lookup")) {
    std::vector<slm::Token> library;
    if (!options.lookup_file.empty())
      library = slm::Tokenizer::from(slm::path_of(tokenizer)).encode(read_text(options.lookup_file), false);
    drafter.add(slm::Lookup({}, library));
  }
  if (!options.draft.empty() && (all || named("model"))) drafter.add(loader.load_draft(options.draft, target));
  return drafter;
}

}  // namespace cli
