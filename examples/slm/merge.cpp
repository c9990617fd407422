// slm merge: merges an adapter into its model.
#include "slm/io/merge.hpp"

#include <iomanip>
#include <memory>
#include <sstream>
#include <string>

#include "cli.hpp"
#include "tools/cli/progress.hpp"

namespace cli {

namespace {

struct MergeCommand {
  std::string model, adapter, output;
  bool json = false;
};

void merge(const MergeCommand& command) {
  ProgressBar bar("merging");
  const slm::MergeReport report = slm::merge_adapter(slm::path_of(command.model), slm::path_of(command.adapter),
                                                     slm::path_of(command.output), [&](double share) { bar(share); });
  if (command.json) {
    OrderedJson json;
    json["output"] = command.output;
    json["changed"] = report.changed;
    json["bytes"] = report.bytes;
    json["untied"] = report.untied;
    return print_json(json);
  }
  std::ostringstream line;
  line << "changed " << report.changed << " tensors; " << std::fixed << std::setprecision(1)
       << static_cast<double>(report.bytes) / 1e6 << " MB in " << command.output
       << (report.untied ? "; the head is a separate tensor now\n" : "\n");
  print(line.str());
}

}  // namespace

void add_merge(CLI::App& program) {
  auto command = std::make_shared<MergeCommand>();
  CLI::App& app = *program.add_subcommand("merge", "Merge an adapter into its model's weights");
  app.add_option("model", command->model, "model folder, in floating point")->required();
  app.add_option("adapter", command->adapter, "adapter (PEFT folder)")->required();
  app.add_option("output", command->output, "folder to create; it must not exist")->required();
  app.add_flag("--json", command->json, "print one JSON object");
  app.callback([command] { merge(*command); });
}

}  // namespace cli
