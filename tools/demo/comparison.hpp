// Comparison: the speed of plain and speculative decoding of some prompts, measured in turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "slm/speculative.hpp"

namespace demo {

struct Prompt {
  std::string shown;
  std::vector<slm::Token> ids;
};

/// Results of all prompts for one kind of decoding.
struct Pass {
  std::vector<std::vector<slm::Token>> outputs;  // [prompts]
  std::int64_t tokens = 0;
  std::int64_t steps = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double seconds = 0;  // decoding seconds, excluding prompts

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  double steps_per_second() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
  double tokens_per_step() const { return steps > 0 ? static_cast<double>(tokens) / static_cast<double>(steps) : 0; }
  double acceptance_rate() const {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }
};

template <class Decoder>
Pass run(Decoder& decoder, const std::vector<Prompt>& prompts, const slm::Sampling& sampling) {
  Pass pass;
  for (const Prompt& prompt : prompts) {
    auto& output = pass.outputs.emplace_back();
    const slm::Stats stats = decoder.generate(prompt.ids, sampling, [&](slm::Token token) { output.push_back(token); });
    pass.tokens += stats.emitted;
    pass.steps += stats.rounds;
    pass.drafted += stats.drafted;
    pass.accepted += stats.accepted;
    pass.seconds += stats.decode_seconds();
  }
  return pass;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Comparison {
  std::size_t prompts = 0;
  int repeats = 0;
  Pass speculative;  // of the first repeat
  bool identical = true;
  double plain_speed = 0;  // tokens per second, median
  double speculative_speed = 0;
  double plain_steps = 0;  // steps per second, median
  double speculative_steps = 0;
  double step_bytes = 0;  // weight bytes read by one plain step
  double bandwidth = 0;   // bytes per second, median; 0: not measured

  double speedup() const { return speculative_speed / plain_speed; }
  double share_of_bandwidth(double steps) const { return bandwidth > 0 ? steps * step_bytes / bandwidth : 0; }
};

/// Runs both kinds of decoding alternately. probe: measures the memory bandwidth between them; may be empty.
template <class Speculative>
Comparison compare(slm::AutoregressiveDecoder<>& plain, Speculative& speculative, const std::vector<Prompt>& prompts,
                   const slm::Sampling& sampling, int repeats, const std::function<double()>& probe = {}) {
  std::vector<double> plain_speeds, speculative_speeds, plain_steps, speculative_steps, bandwidths;
  Comparison result;
  result.prompts = prompts.size();
  result.repeats = repeats;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Pass one = run(plain, prompts, sampling);
    if (probe) bandwidths.push_back(probe());
    Pass other = run(speculative, prompts, sampling);
    result.identical = result.identical && one.outputs == other.outputs;
    plain_speeds.push_back(one.tokens_per_second());
    speculative_speeds.push_back(other.tokens_per_second());
    plain_steps.push_back(one.steps_per_second());
    speculative_steps.push_back(other.steps_per_second());
    if (repeat == 0) result.speculative = std::move(other);
  }
  result.plain_speed = median(plain_speeds);
  result.speculative_speed = median(speculative_speeds);
  result.plain_steps = median(plain_steps);
  result.speculative_steps = median(speculative_steps);
  result.step_bytes = static_cast<double>(plain.model().info().step_bytes);
  if (probe) result.bandwidth = median(bandwidths);
  return result;
}

inline std::string table_of(const Comparison& result) {
  std::ostringstream table;
  table << std::fixed << std::setprecision(2);
  const auto row = [&table](const char* label) -> std::ostream& {
    return table << "  " << std::left << std::setw(26) << label << std::right << std::setw(10);
  };
  row("") << "plain" << std::setw(14) << "speculative" << '\n';
  row("tokens per second") << std::setprecision(0) << result.plain_speed << std::setw(14) << result.speculative_speed
                           << std::setprecision(2) << '\n';
  row("tokens per target step") << 1.0 << std::setw(14) << result.speculative.tokens_per_step() << '\n';
  row("acceptance") << "" << std::setw(14) << result.speculative.acceptance_rate() << '\n';
  row("speedup") << "" << std::setw(13) << result.speedup() << "x\n";
  if (result.bandwidth > 0) {
    row("share of the bandwidth") << 100 * result.share_of_bandwidth(result.plain_steps) << " %" << std::setw(12)
                                  << 100 * result.share_of_bandwidth(result.speculative_steps) << " %\n";
  }
  row("identical output") << "" << std::setw(14) << (result.identical ? "yes" : "NO") << '\n';
  table << "  (" << result.prompts << " prompts, " << result.speculative.tokens << " new tokens; medians of "
        << result.repeats << " interleaved repeats, greedy)\n";
  if (result.bandwidth > 0) {
    table << "  (a step reads " << result.step_bytes / 1e6 << " MB of weights; the memory gave "
          << result.bandwidth / 1e9 << " GB/s\n";
  }
  return table.str();
}

/// Throws cli.not-identical.
inline void check_identical(const Comparison& result) {
  if (result.identical) return;
  throw slm::Error("cli.not-identical",
                   "expected equal tokens from speculative and plain decoding, found different ones",
                   "Report this with your processor's name");
}

/// Prints a prompt and its continuation, as the tokens arrive.
template <class Decoder, class Print>
void show(Decoder& decoder, const slm::Tokenizer& tokenizer, const Prompt& prompt, const slm::Sampling& sampling,
          Print print) {
  print(prompt.shown);
  slm::TextStream stream(tokenizer, prompt.ids, [&](std::string_view piece) { print(piece); });
  decoder.generate(prompt.ids, sampling, stream);
  print("\n\n");
}

}  // namespace demo
