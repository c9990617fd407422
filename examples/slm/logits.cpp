// slm logits: what a model says after each of some tokens.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <system_error>

#include "cli.hpp"

namespace cli {

namespace {

struct LogitsOptions {
  std::string model;
  std::vector<slm::Token> ids;
  std::string backend = "cpu";
  slm::backend::CpuOptions cpu;
  bool json = false;
};

/// "1,5,7" to ids; false when it is anything else.
bool parse_ids(std::string_view text, std::vector<slm::Token>& ids) {
  ids.clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;; ++at) {
    const auto [stop, fault] = std::from_chars(at, end, ids.emplace_back());
    if (fault != std::errc{}) return false;
    if (stop == end) return true;
    if (*stop != ',') return false;
    at = stop;
  }
}

/// Nine significant digits give back the same float. JSON has no word for NaN and infinity.
void append_number(std::string& out, float value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
  out += std::isfinite(value) ? digits : "null";
}

void logits(const LogitsOptions& options) {
  Loader loader(options.cpu);
  slm::AnyModel model = loader.load(options.model, options.backend);
  slm::check_prompt(options.ids, model.info());

  std::string out;
  if (options.json) {
    out = slm::text("{\"ids\":", OrderedJson(options.ids).dump(), ",\"vocab\":", model.info().vocab, ",\"logits\":");
  }
  out += "[";
  // Rows do not depend on how many are asked for at once; asking for few keeps memory small.
  constexpr std::size_t most_rows = 64;
  for (std::size_t first = 0; first < options.ids.size(); first += most_rows) {
    const std::size_t count = std::min(most_rows, options.ids.size() - first);
    const auto rows = model.extend({options.ids.data() + first, count}, static_cast<int>(count));
    for (std::int64_t r = 0; r < rows.extent(0); ++r) {
      out += first == 0 && r == 0 ? "[" : ",\n[";
      for (std::int64_t id = 0; id < rows.extent(1); ++id) {
        if (id > 0) out += ",";
        append_number(out, rows(r, id));
      }
      out += "]";
      print(out);
      out.clear();
    }
  }
  print(options.json ? "]}\n" : "]\n");
}

}  // namespace

void add_logits(CLI::App& program) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App& command = *program.add_subcommand("logits", "Print the logits after each token, a JSON row for each");
  command.add_option("model", options->model, "folder or GGUF file of the model")->required();
  command.add_option("--ids", "token ids: 1,5,7")->required()->check([options](const std::string& text) {
    return parse_ids(text, options->ids) ? "" : "expected token ids like 1,5,7";
  });
  add_backend_options(command, options->backend, options->cpu);
  command.add_flag("--json", options->json, "print one JSON object: ids, vocab, logits");
  command.callback([options] { logits(*options); });
}

}  // namespace cli
