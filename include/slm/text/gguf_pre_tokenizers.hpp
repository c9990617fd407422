// The pre-tokenizer for each name of tokenizer.ggml.pre.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "slm/text/pre_tokenizer.hpp"
#include "slm/text/split/patterns.hpp"
#include "slm/text/split/pieces.hpp"

namespace slm { inline namespace v0_1 { namespace tokenizer_file {

struct GgufSplit {
  std::string_view pattern;  // empty: bytes become characters of the byte-level alphabet
  split::Behavior behavior = split::Behavior::isolated;
};

/// The splits of the published tokenizers, in their order.
namespace gguf_splits {
namespace pattern = split::pattern;
inline constexpr GgufSplit bytes{{}};
inline constexpr auto contiguous = split::Behavior::contiguous;
inline constexpr GgufSplit gpt2[] = {{pattern::gpt2}, bytes};
inline constexpr GgufSplit llama3[] = {{pattern::llama3}, bytes};
inline constexpr GgufSplit qwen2[] = {{pattern::qwen2}, bytes};
inline constexpr GgufSplit qwen35[] = {{pattern::qwen35}, bytes};
inline constexpr GgufSplit o200k[] = {{pattern::o200k}, bytes};
inline constexpr GgufSplit tekken[] = {{pattern::tekken}, bytes};
inline constexpr GgufSplit deepseek_llm[] = {{pattern::line_break},
                                             {pattern::deepseek_letters},
                                             {pattern::deepseek_punctuation},
                                             {pattern::deepseek_trailing_space},
                                             {pattern::deepseek_cjk},
                                             {pattern::number},
                                             bytes};
inline constexpr GgufSplit deepseek_coder[] = {{pattern::line_break},
                                               {pattern::deepseek_coder_letters},
                                               {pattern::deepseek_coder_punctuation},
                                               {pattern::deepseek_cjk},
                                               {pattern::number},
                                               bytes};
inline constexpr GgufSplit deepseek_v3[] = {{pattern::three_digits}, {pattern::cjk}, {pattern::deepseek_v3}, bytes};
inline constexpr GgufSplit starcoder[] = {{pattern::number}, {pattern::gpt2}, bytes};
inline constexpr GgufSplit falcon[] = {{pattern::punctuation, contiguous},
                                       {pattern::gpt2},
                                       bytes,
                                       {pattern::number, contiguous},
                                       {pattern::three_ascii_digits}};
inline constexpr GgufSplit bloom[] = {{pattern::bloom}, bytes};
inline constexpr GgufSplit viking[] = {{pattern::bloom}, {pattern::number}, bytes};
inline constexpr GgufSplit seed_coder[] = {{pattern::seed_coder}, bytes};
inline constexpr GgufSplit bailingmoe[] = {{pattern::bailingmoe}, bytes};
inline constexpr GgufSplit minicpm5[] = {{pattern::three_digits}, {pattern::minicpm5}, bytes};
inline constexpr GgufSplit exaone_moe[] = {{pattern::exaone_moe}, bytes};
inline constexpr GgufSplit kimi_k2[] = {{pattern::kimi_k2}, bytes};
inline constexpr GgufSplit superbpe[] = {{pattern::digits}, {pattern::threes_from_right}, bytes};
inline constexpr GgufSplit jais_2[] = {{pattern::jais2}, bytes};
inline constexpr GgufSplit tiny_aya[] = {{pattern::threes_before_edge}, {pattern::o200k}, bytes};
inline constexpr GgufSplit youtu[] = {{pattern::youtu_cjk}, {pattern::youtu}, bytes};
inline constexpr GgufSplit ufakzeka[] = {{pattern::ufakzeka}, bytes};
inline constexpr GgufSplit laguna[] = {{pattern::lines}, {pattern::qwen2}, bytes};
inline constexpr GgufSplit chameleon[] = {{pattern::chameleon_sentinel},
                                          {pattern::chameleon_image},
                                          {pattern::chameleon_space},
                                          {pattern::number},
                                          {pattern::punctuation},
                                          {pattern::gpt2},
                                          bytes};
inline constexpr GgufSplit spark2_5[] = {
    {pattern::three_digits}, {pattern::cjk}, {pattern::spark2_5}, {pattern::number}, bytes};
inline constexpr GgufSplit whitespace[] = {{pattern::space, split::Behavior::removed}};
inline constexpr GgufSplit afmoe[] = {
    {pattern::threes_before_edge}, {pattern::afmoe_scripts}, {pattern::deepseek_v3}, bytes};
}  // namespace gguf_splits

/// A file says only this name: how a text is normalized and split, whether a word that is a token stays one whatever
/// the merges say, and whether a text begins with the bos token by default, follow from it.
struct GgufPreTokenizer {
  enum class Normal {
    none,
    nfc,
    marked,  // a space becomes ▁, and bytes stay bytes
  };
  std::string_view name;
  std::span<const GgufSplit> splits;
  Normal normal = Normal::none;
  bool ignores_merges = false;
  bool begins = false;
};

inline constexpr auto gguf_nfc = GgufPreTokenizer::Normal::nfc;
inline constexpr auto gguf_marked = GgufPreTokenizer::Normal::marked;

// Of several names for one tokenizer, writers take the first.
inline constexpr GgufPreTokenizer gguf_pre_tokenizers[] = {
    {"gpt-2", gguf_splits::gpt2},
    {"phi-2", gguf_splits::gpt2},
    {"mpt", gguf_splits::gpt2, gguf_nfc},
    {"olmo", gguf_splits::gpt2, gguf_nfc},
    {"smollm", gguf_splits::starcoder},
    {"starcoder", gguf_splits::starcoder},
    {"refact", gguf_splits::starcoder},
    {"command-r", gguf_splits::starcoder, gguf_nfc},
    {"codeshell", gguf_splits::starcoder},
    {"llama-bpe", gguf_splits::llama3, {}, true, true},
    {"llama3", gguf_splits::llama3, {}, true, true},
    {"llama-v3", gguf_splits::llama3, {}, true, true},
    {"falcon3", gguf_splits::llama3, {}, true, true},
    {"lfm2", gguf_splits::llama3, {}, true, true},
    {"pixtral", gguf_splits::llama3, {}, true, true},
    {"dbrx", gguf_splits::llama3},
    {"smaug-bpe", gguf_splits::llama3},
    {"qwen2", gguf_splits::qwen2, gguf_nfc},
    {"deepseek-r1-qwen", gguf_splits::qwen2, gguf_nfc},
    {"megrez", gguf_splits::qwen2, gguf_nfc},
    {"stablelm2", gguf_splits::qwen2, gguf_nfc},
    {"gpt-4o", gguf_splits::o200k},
    {"llama4", gguf_splits::o200k},
    {"tekken", gguf_splits::tekken, {}, true, true},
    {"gemma4", {}, gguf_marked},
    {"minicpm5", gguf_splits::minicpm5, {}, true},
    {"deepseek-llm", gguf_splits::deepseek_llm},
    {"deepseek-coder", gguf_splits::deepseek_coder},
    {"deepseek-v3", gguf_splits::deepseek_v3},
    {"spark2_5", gguf_splits::spark2_5},
    {"youtu", gguf_splits::youtu, {}, true},
    {"falcon", gguf_splits::falcon},
    {"jais-2", gguf_splits::jais_2},
    {"sarvam-moe", {}, gguf_marked},
    {"whitespace", gguf_splits::whitespace},
    {"qwen35", gguf_splits::qwen35, gguf_nfc},
    {"poro-chat", gguf_splits::bloom},
    {"glm4", gguf_splits::llama3},
    {"chatglm-bpe", gguf_splits::llama3},
    {"viking", gguf_splits::viking},
    {"jais", gguf_splits::gpt2},
    {"bloom", gguf_splits::bloom},
    {"gpt3-finnish", gguf_splits::bloom},
    {"exaone", gguf_splits::starcoder},
    {"exaone4", gguf_splits::gpt2},
    {"exaone-moe", gguf_splits::exaone_moe, gguf_nfc},
    {"chameleon", gguf_splits::chameleon, {}, false, true},
    {"minerva-7b", gguf_splits::starcoder},
    {"granite-embed-multi-97m", gguf_splits::o200k, {}, true},
    {"superbpe", gguf_splits::superbpe},
    {"trillion", gguf_splits::gpt2},
    {"granite-docling", gguf_splits::gpt2},
    {"seed-coder", gguf_splits::seed_coder},
    {"hunyuan", gguf_splits::qwen2, gguf_nfc},
    {"hunyuan-dense", gguf_splits::deepseek_v3},
    {"hy_v4", gguf_splits::deepseek_v3},
    {"joyai-llm", gguf_splits::deepseek_v3},
    {"kimi-k2", gguf_splits::kimi_k2},
    {"ufakzeka", gguf_splits::ufakzeka},
    {"grok-2", gguf_splits::qwen2, gguf_nfc},
    {"afmoe", gguf_splits::afmoe},
    {"laguna", gguf_splits::laguna},
    {"minimax-m2", gguf_splits::o200k},
    {"solar-open", gguf_splits::qwen2, gguf_nfc},
    {"mellum2", gguf_splits::starcoder},
    {"falcon-h1", gguf_splits::llama3, {}, true, true},
    {"midm-2.0", gguf_splits::llama3, {}, true, true},
    {"jina-v5-nano", gguf_splits::llama3, {}, true, true},
    {"jina-es", gguf_splits::gpt2},
    {"jina-de", gguf_splits::gpt2},
    {"gigachat", gguf_splits::gpt2},
    {"jina-v2-es", gguf_splits::gpt2},
    {"jina-v2-de", gguf_splits::gpt2},
    {"a.x-4.0", gguf_splits::gpt2},
    {"mellum", gguf_splits::gpt2},
    {"modern-bert", gguf_splits::gpt2},
    {"jina-v1-en", gguf_splits::gpt2},
    {"jina-v2-code", gguf_splits::gpt2},
    {"roberta-bpe", gguf_splits::gpt2},
    {"granite-embed-multi-311m", {}, gguf_marked},
    {"kormo", gguf_splits::qwen2, gguf_nfc},
    {"f2llmv2", gguf_splits::qwen2, gguf_nfc},
    {"kanana2", gguf_splits::o200k},
    {"talkie", gguf_splits::o200k},
    {"tiny_aya", gguf_splits::tiny_aya},
    {"cohere2moe", gguf_splits::tiny_aya},
    {"bailingmoe", gguf_splits::bailingmoe},
    {"bailingmoe2", gguf_splits::bailingmoe},
    {"llada-moe", gguf_splits::bailingmoe},
};

/// The entry of a name, or nullptr.
inline const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto known = std::find_if(std::begin(gguf_pre_tokenizers), std::end(gguf_pre_tokenizers),
                                  [&](const GgufPreTokenizer& candidate) { return candidate.name == name; });
  return known == std::end(gguf_pre_tokenizers) ? nullptr : known;
}

/// Whether tokens are spelled in characters of the byte-level alphabet.
inline bool maps_bytes(std::span<const GgufSplit> splits) {
  return std::any_of(splits.begin(), splits.end(), [](const GgufSplit& split) { return split.pattern.empty(); });
}

/// Whether the steps of a tokenizer are those splits.
inline bool are_splits(const std::vector<PreTokenizer::Step>& steps, std::span<const GgufSplit> splits) {
  return std::equal(steps.begin(), steps.end(), splits.begin(), splits.end(),
                    [](const PreTokenizer::Step& step, const GgufSplit& split) {
                      const auto* splitter = std::get_if<split::Splitter>(&step);
                      if (split.pattern.empty()) return std::holds_alternative<PreTokenizer::ByteLevel>(step);
                      return splitter && splitter->matcher->pattern() == split.pattern &&
                             splitter->behavior == split.behavior && !splitter->invert;
                    });
}

inline void add_splits(PreTokenizer& pre_tokenizer, std::span<const GgufSplit> splits, std::string_view file) {
  for (const GgufSplit& split : splits) {
    if (split.pattern.empty()) {
      pre_tokenizer.add(PreTokenizer::ByteLevel{});
    } else {
      pre_tokenizer.add(split::Splitter{split::Matcher::compile(split.pattern, file), split.behavior});
    }
  }
}

}}}
