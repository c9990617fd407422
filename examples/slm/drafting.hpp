// The options of generate, chat and serve that choose the sources of drafts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "slm/decode/drafter.hpp"
#include "tools/cli/loading.hpp"

namespace cli {

struct DraftingOptions {
  std::string draft;                  // model
  std::vector<std::string> drafters;  // empty: all that is there
  std::string lookup_file;
};

/// Adds --draft, --drafter and --lookup-file. Returns --draft.
CLI::Option* add_drafter_options(CLI::App& command, DraftingOptions& options);

/// Throws cli.no-draft, cli.drafter-none and the errors of loading. tokenizer: the folder or file of the target.
slm::Drafter make_drafter(const DraftingOptions& options, Loader& loader, const slm::ModelInfo& target,
                          const std::string& tokenizer);

}  // namespace cli
