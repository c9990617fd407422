// The measured settings, their prompts, and the extraction of programs from texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/command/pass_at_1.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/io/json.hpp"

namespace slm::bench::speculative {

/// One setting, measured plainly and with each draft length.
struct Setting {
  std::string setup;     // published, best or sweep
  std::string sampling;  // greedy or sampled
  std::vector<std::string> draft_lengths;
  std::vector<std::string> stops;  // strings that end the text
  std::size_t tasks = 0;           // number of tasks, from the first

  Sampling sampling_of(int max_new_tokens, std::size_t task) const {
    Sampling made{.max_new_tokens = max_new_tokens, .temperature = 0.0f, .seed = 42 + task};
    if (sampling == "sampled") {
      made.temperature = 0.1f;
      made.top_k = 10;
      made.top_p = 0.95f;
    }
    return made;
  }
};

/// Strings that end a function at the left margin.
inline std::vector<std::string> function_ends() { return {"\ndef", "\nclass", "\nif", "\nprint", "\n#", "\n@"}; }

/// "published", "best" or "both" in "greedy", "sampled" or "both"; the sweep over fixed draft lengths is greedy.
inline std::vector<Setting> settings_of(std::string_view setup, std::string_view sampling,
                                        std::string_view draft_length, std::size_t tasks, std::size_t sweep_tasks) {
  std::vector<Setting> made;
  const auto add = [&](const char* name, const char* drawn, std::string_view policy, std::vector<std::string> stops) {
    const bool wanted = (setup == "both" || setup == name) && (sampling == "both" || sampling == drawn);
    if (wanted) made.push_back({name, drawn, {std::string{policy}}, std::move(stops), tasks});
  };
  for (const char* drawn : {"greedy", "sampled"}) add("published", drawn, "heuristic", {});
  for (const char* drawn : {"greedy", "sampled"}) add("best", drawn, draft_length, function_ends());
  if (sweep_tasks > 0) {
    made.push_back({"sweep", "greedy", {"1", "2", "3", "4", "5", "6", "7", "8"}, {}, std::min(sweep_tasks, tasks)});
  }
  return made;
}

inline Json to_json(const Setting& setting) {
  return {{"setup", setting.setup},
          {"sampling", setting.sampling},
          {"draft_lengths", setting.draft_lengths},
          {"stops", setting.stops},
          {"tasks", setting.tasks}};
}

/// Precedes every task, like the few-shot example of the published procedure.
inline constexpr std::string_view worked_example =
    "# Complete each Python function.\n"
    "\n"
    "def count_vowels(text: str) -> int:\n"
    "    \"\"\" Count the vowels in a text.\n"
    "    >>> count_vowels('banana')\n"
    "    3\n"
    "    \"\"\"\n"
    "    count = 0\n"
    "    for letter in text.lower():\n"
    "        if letter in 'aeiou':\n"
    "            count += 1\n"
    "    return count\n"
    "\n"
    "\n";

/// The limits of a prompt with its continuation, and of the continuation alone, in tokens.
struct TokenLimits {
  int window = 0;          // at most the published 4096
  int max_new_tokens = 0;  // at most half of it

  static TokenLimits in(int context, int wanted_new_tokens) {
    const int window = std::min(4096, context);
    return {window, std::min(wanted_new_tokens, window / 2)};
  }
};

/// Shortens a prompt that is too long. It removes tokens just before the last three.
template <class Token>
std::vector<Token> fit(std::vector<Token> prompt, TokenLimits limits) {
  const auto most = static_cast<std::size_t>(limits.window - limits.max_new_tokens);
  if (prompt.size() <= most) return prompt;
  const auto kept_end = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, most));
  prompt.erase(prompt.begin() + static_cast<std::ptrdiff_t>(most) - kept_end, prompt.end() - kept_end);
  return prompt;
}

/// The program in a text, for pass@1.
inline std::string completion_of(std::string_view setup, const std::string& text) {
  return cut_completion(text, setup == "published" ? Cut::published : Cut::function);
}

}  // namespace slm::bench::speculative
