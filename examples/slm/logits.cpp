// slm logits: prints a model's logits after each of some tokens.
#include <algorithm>
#include <memory>

#include "cli.hpp"

namespace cli {

namespace {

struct LogitsOptions {
  std::string model;
  std::vector<slm::Token> ids;
  ModelOptions models;
  bool json = false;
};

void logits(const LogitsOptions& options) {
  Loader loader(options.models);
  slm::Session model(loader.load(options.model));
  slm::check_prompt(options.ids, model.info());

  std::string out;
  if (options.json) {
    out = slm::text("{\"ids\":", OrderedJson(options.ids).dump(), ",\"vocab\":", model.info().vocab, ",\"logits\":");
  }
  out += "[";
  // Rows do not depend on the batch; small batches limit memory.
  constexpr std::size_t most_rows = 64;
  for (std::size_t first = 0; first < options.ids.size(); first += most_rows) {
    const std::size_t count = std::min(most_rows, options.ids.size() - first);
    const auto rows = model.forward({options.ids.data() + first, count}, static_cast<int>(count));
    for (std::int64_t r = 0; r < rows.extent(0); ++r) {
      if (first != 0 || r != 0) out += ",\n";
      append_numbers(out, {rows.row(r), static_cast<std::size_t>(rows.extent(1))});
      print(out);
      out.clear();
    }
  }
  print(options.json ? "]}\n" : "]\n");
}

}  // namespace

void add_logits(CLI::App& program) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App& command = *program.add_subcommand("logits", "Print the logits after each token, one JSON row each");
  command.add_option("model", options->model, "model (folder or GGUF file)")->required();
  command.add_option("--ids", "token ids: 1,5,7")->required()->check([options](const std::string& text) {
    return parse_ids(text, options->ids) ? "" : "expected token ids like 1,5,7";
  });
  add_model_options(command, options->models);
  command.add_flag("--json", options->json, "print one JSON object: ids, vocab, logits");
  command.callback([options] { logits(*options); });
}

}  // namespace cli
