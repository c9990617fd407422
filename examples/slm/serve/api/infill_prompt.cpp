#include "api/infill_prompt.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace serve {

namespace {

constexpr std::size_t most_files = 256;

/// The names of the tokens, by family of models.
struct InfillNames {
  std::string_view prefix, suffix, middle;
  std::string_view repository{}, file{};  // empty: other files are plain text before the prefix
};

constexpr InfillNames families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},  // Qwen2.5-Coder
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},                                   // CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},            // StarCoder 2
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},                                         // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},                                         // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},                                   // DeepSeek-Coder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                                                           // Code Llama
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},                                // GLM-4
};

/// The tokens of a family; a missing name is nothing.
struct InfillTokens {
  slm::Token prefix, suffix, middle;
  std::optional<slm::Token> repository{}, file{};
};

std::optional<InfillTokens> tokens_of(const slm::Tokenizer& tokenizer) {
  for (const InfillNames& names : families) {
    const auto prefix = tokenizer.token(names.prefix), suffix = tokenizer.token(names.suffix),
               middle = tokenizer.token(names.middle);
    if (!prefix || !suffix || !middle) continue;
    InfillTokens tokens{*prefix, *suffix, *middle};
    if (names.file.empty()) return tokens;
    tokens.repository = tokenizer.token(names.repository);
    tokens.file = tokenizer.token(names.file);
    if (tokens.repository && tokens.file) return tokens;
  }
  return std::nullopt;
}

/// The files of `input_extra`: names and texts.
std::vector<std::pair<std::string, std::string>> read_files(const Fields& fields) {
  std::vector<std::pair<std::string, std::string>> files;
  const slm::Json* const list = fields.find("input_extra");
  if (list == nullptr) return files;
  if (list->size() > most_files) {
    throw bad_field("input_extra", slm::text("has ", list->size(), " files, expected at most ", most_files));
  }
  for (const slm::Json& file : *list) {
    const auto is_text = [&file](const char* name) { return file.contains(name) && file[name].is_string(); };
    if (!file.is_object() || !is_text("text") || (file.contains("filename") && !is_text("filename"))) {
      throw Fields::bad("input_extra", file, "objects with a string as `text`, and one as `filename`");
    }
    files.emplace_back(file.value("filename", "tmp"), file["text"].get<std::string>());
  }
  return files;
}

}  // namespace

std::vector<slm::Token> infill_prompt(const Fields& fields, const ServedModel& model) {
  const auto files = read_files(fields);
  const std::optional<InfillTokens> marks = tokens_of(model.tokenizer);
  if (!marks) {
    throw Refusal(501, "serve.no-infill", "The model's tokenizer has no tokens for filling in the middle.");
  }
  std::vector<slm::Token> prompt = model.tokenizer.encode("", true);  // what every text begins with
  const auto add = [&](const std::string& text) {                     // code never becomes a control token
    const std::vector<slm::TextPart> parts{{text, true}};
    const std::vector<slm::Token> tokens = model.tokenizer.encode(parts, false);
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  };
  if (marks->repository && !files.empty()) {
    prompt.push_back(*marks->repository);
    add("project\n");
  }
  for (const auto& [name, text] : files) {
    if (marks->file) prompt.push_back(*marks->file);
    add(marks->file ? name + "\n" + text : text + "\n");
  }
  if (marks->file && !files.empty()) {
    prompt.push_back(*marks->file);
    add("filename\n");
  }
  prompt.push_back(marks->prefix);
  add(fields.string("input_prefix", "") + fields.string("prompt", ""));
  prompt.push_back(marks->suffix);
  add(fields.string("input_suffix", ""));
  prompt.push_back(marks->middle);
  for (const slm::Token token : prompt) {
    if (token < 0 || token >= model.info.vocab) {
      throw Refusal(501, "serve.no-infill", "The model's vocabulary lacks the tokens for filling in the middle.");
    }
  }
  return prompt;
}

}  // namespace serve
