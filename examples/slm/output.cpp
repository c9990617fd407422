// Standard output and input, checked.
#include <cstdio>
#include <iostream>
#include <memory>

#include "cli.hpp"

namespace cli {

void print(std::string_view text) {
  std::cout << text << std::flush;
  if (!std::cout) {
    throw slm::Error("cli.output-failed", "standard output could not be written",
                     "Check for a full disk or a reader that went away");
  }
}

void print_json(const OrderedJson& json) { print(json.dump() + "\n"); }

namespace {

/// All bytes of an open file; false when reading fails, as it does on a folder.
bool read_all(std::FILE* file, std::string& out) {
  char piece[1 << 16];
  while (const std::size_t count = std::fread(piece, 1, sizeof piece, file)) out.append(piece, count);
  return std::ferror(file) == 0;
}

}  // namespace

std::string read_standard_input() {
  std::string text;
  if (!read_all(stdin, text)) {
    throw slm::Error("cli.input-failed", "standard input could not be read", "Give the text by a pipe or a file");
  }
  return text;
}

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  std::string text;
  if (!file || !read_all(file.get(), text)) {
    throw slm::Error("cli.unreadable-file", slm::text("'", path, "' could not be read"),
                     "Check the path and its permissions");
  }
  return text;
}

OrderedJson to_json(const slm::Stats& stats) {
  OrderedJson json;
  json["finish_reason"] = slm::name_of(stats.finish_reason);
  json["rule"] = stats.rule;
  json["prompt_tokens"] = stats.prompt_tokens;
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
  json["evaluated"] = stats.evaluated;
  json["accepted"] = stats.accepted;
  json["drafted_at_depth"] = stats.drafted_at_depth;
  json["accepted_at_depth"] = stats.accepted_at_depth;
  json["emitted_histogram"] = stats.emitted_histogram;
  json["mean_draft_length"] = stats.mean_draft_length();
  json["draft_forwards"] = stats.draft_forwards;
  json["seconds"] = {{"total", stats.total_seconds},     {"prompt", stats.prefill_seconds()},
                     {"target", stats.verify_seconds},   {"draft", stats.draft_seconds},
                     {"choosing", stats.sample_seconds}, {"decoding", stats.decode_seconds()}};
  json["draft_bytes_per_step"] = stats.draft_bytes_per_step;
  json["target_bytes_per_step"] = stats.target_bytes_per_step;
  json["draft_faults"] = stats.draft_faults;
  json["unmappable_tokens"] = stats.unmappable_tokens;
  json["disabled_reason"] = stats.disabled_reason;
  return json;
}

}  // namespace cli
