#include "api/served_model.hpp"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <utility>

#include "slm/core/macros.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/path_name.hpp"
#include "slm/model/page_pool.hpp"
#include "slm/text/chat_sources.hpp"
#include "tools/cli/pooling.hpp"

namespace serve {

namespace {

/// Information for clients that tokenize themselves or need the end token.
OrderedJson tokenizer_info_of(const std::filesystem::path& path, const slm::ModelInfo& info,
                              const slm::Tokenizer& tokenizer) {
  OrderedJson json = OrderedJson::object();
  if (const auto gguf = slm::gguf_of(path)) {
    const std::string jinja = slm::read_gguf_fields(
        *gguf, [](const slm::GgufFields& fields) { return std::string{fields.string("tokenizer.chat_template", "")}; });
    if (!jinja.empty()) json["chat_template"] = jinja;
  } else {
    const auto file = path / "tokenizer_config.json";
    if (slm::file_exists(file)) json = OrderedJson::parse(slm::read_json_object(file).dump());
    for (const slm::chat::Source& source : slm::chat::templates_of_folder(path)) {
      if (source.name == "default") json["chat_template"] = source.text;
    }
  }
  for (const char* name : {"bos_token", "eos_token"}) {  // added tokens are objects: use their text
    if (json.contains(name) && json[name].is_object()) json[name] = json[name].value("content", "");
  }
  const auto& eos = json["eos_token"];
  if (!eos.is_string() && !info.end_tokens.empty()) json["eos_token"] = tokenizer.piece(info.end_tokens.front());
  if (!json.contains("tokenizer_class")) json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json;
}

/// The model has no template, or one that does not compile.
bool is_of_template(const slm::Error& error) {
  return error.id() == "chat.unrecognised" || error.id() == "chat.no-default" || error.id() == "chat.template-syntax" ||
         error.id() == "chat.template-limit";
}

}  // namespace

std::string hex(std::uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string version_text() { return slm::text(SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH); }

ServedModel describe_model(const std::string& folder, std::vector<std::string> names, const slm::AnyModel& model,
                           const cli::ChatOptions& chat, const std::string& backend) {
  const std::filesystem::path path = slm::path_of(folder);
  if (names.empty()) names = {slm::detail::name_of_model(path)};
  auto tokenizer = slm::Tokenizer::from(path);
  std::optional<cli::ChatFormat> format;
  std::optional<slm::Error> no_chat;
  std::string notice;
  try {
    const slm::ChatTemplate form = cli::choose_template(chat, folder);
    cli::ChatFormat found = cli::make_chat_format(form, chat, tokenizer);
    try {
      found.encode(tokenizer, {{"user", "Hello"}});  // throws where the tokenizer lacks a token of the template
    } catch (const slm::TemplateError&) {            // it may want other messages
    }
    if (form.is_guessed()) notice = cli::guess_notice(form);
    format = std::move(found);
  } catch (const slm::Error& error) {
    if (!(chat.template_choice.empty() && is_of_template(error)) && error.id() != "chat.missing-token") throw;
    notice = slm::text("Chat requests are refused: ", error.what());  // completions are not
    no_chat = error;
  }
  slm::Pooling pooling = slm::Pooling::mean;
  std::optional<slm::Error> no_pooling;
  try {
    pooling = cli::choose_pooling(path).pooling;
  } catch (const slm::Error& error) {
    if (error.id() != "cli.unsupported-pooling") throw;
    no_pooling = error;
  }
  const slm::KvPool pool = model.pool();
  const std::uint64_t digest = pool ? pool.model_digest() : 0;
  return {.names = std::move(names),
          .root = folder,
          .info = model.info(),
          .tokenizer = tokenizer,
          .chat = std::move(format),
          .no_chat = std::move(no_chat),
          .chat_notice = std::move(notice),
          .pooling = pooling,
          .no_pooling = std::move(no_pooling),
          .fingerprint = slm::text("slm-", version_text(), "-", backend, "-", hex(digest)),
          .tokenizer_info = tokenizer_info_of(path, model.info(), tokenizer),
          .created = static_cast<std::int64_t>(std::time(nullptr))};
}

}  // namespace serve
