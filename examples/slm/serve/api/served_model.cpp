#include "api/served_model.hpp"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>

#include "slm/core/macros.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/model/kv_pool.hpp"

namespace serve {

namespace {

std::string name_of_path(const std::string& path) {
  auto place = std::filesystem::weakly_canonical(path);
  if (place.extension() == ".gguf") place = place.stem();
  return place.filename().string();
}

/// What clients that tokenize for themselves, or look for the end token, ask for.
OrderedJson tokenizer_info_of(const std::string& path, const slm::ModelInfo& info, const slm::Tokenizer& tokenizer) {
  OrderedJson json = OrderedJson::object();
  if (const auto gguf = slm::gguf_of(path)) {
    const std::string jinja{slm::GgufFile(*gguf).fields().string("tokenizer.chat_template", "")};
    if (!jinja.empty()) json["chat_template"] = jinja;
  } else {
    const auto file = std::filesystem::path(path) / "tokenizer_config.json";
    if (slm::file_exists(file)) json = OrderedJson::parse(slm::read_json_object(file).dump());
    const std::string jinja = slm::chat::detail::jinja_of(path);
    if (!jinja.empty()) json["chat_template"] = jinja;
  }
  for (const char* name : {"bos_token", "eos_token"}) {  // where it is an object, as for added tokens, its text
    if (json.contains(name) && json[name].is_object()) json[name] = json[name].value("content", "");
  }
  const auto& eos = json["eos_token"];
  if (!eos.is_string() && !info.end_tokens.empty()) json["eos_token"] = tokenizer.piece(info.end_tokens.front());
  if (!json.contains("tokenizer_class")) json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json;
}

std::string hex(std::uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

}  // namespace

std::string version_text() { return slm::text(SLM_VERSION_MAJOR, ".", SLM_VERSION_MINOR, ".", SLM_VERSION_PATCH); }

ServedModel describe_model(const std::string& path, std::vector<std::string> names, const slm::AnyModel& model,
                           const cli::ChatOptions& chat, const std::string& backend) {
  if (names.empty()) names = {name_of_path(path)};
  auto tokenizer = slm::Tokenizer::from(path);
  std::optional<cli::ChatFormat> format;
  try {
    format = cli::make_chat_format(cli::choose_template(chat, path), chat, tokenizer);
  } catch (const slm::Error& error) {
    if (error.id() != "chat.unrecognised") throw;  // chats are refused then, and completions are not
  }
  const slm::KvPool pool = model.pool();
  const std::uint64_t digest = pool ? pool.layout().owner().digest.get() : 0;
  return {.names = std::move(names),
          .root = path,
          .info = model.info(),
          .tokenizer = tokenizer,
          .chat = std::move(format),
          .fingerprint = slm::text("slm-", version_text(), "-", backend, "-", hex(digest)),
          .tokenizer_info = tokenizer_info_of(path, model.info(), tokenizer),
          .created = static_cast<std::int64_t>(std::time(nullptr))};
}

void add_adapted(ServedModel& served, const std::string& name, const std::string& folder, slm::AdapterRef adapter) {
  const auto is_plain = [](char byte) { return std::isalnum(static_cast<unsigned char>(byte)) != 0; };
  const auto may_be_in_names = [&](char byte) { return is_plain(byte) || byte == '.' || byte == '_' || byte == '-'; };
  if (name.empty() || name.size() > 128 || !is_plain(name.front()) ||
      !std::all_of(name.begin(), name.end(), may_be_in_names)) {
    throw slm::Error("serve.adapter-name", slm::text("an adapter cannot be called ", slm::quote(name)),
                     "Begin with a letter or digit, and use letters, digits, '.', '_' and '-' only, 128 at most");
  }
  const auto equal = [&](const std::string& other) {  // some file systems and people do not tell cases apart
    return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  };
  const auto is_taken = [&](const AdaptedModel& other) { return equal(other.name); };
  if (std::any_of(served.names.begin(), served.names.end(), equal) ||
      std::any_of(served.adapted.begin(), served.adapted.end(), is_taken)) {
    throw slm::Error("serve.adapter-name", slm::text("the name '", name, "' is taken, case apart"),
                     "Give each adapter a name of its own");
  }
  std::string fingerprint = slm::text(served.fingerprint, "-", hex(adapter->digest));
  served.adapted.push_back({name, folder, std::move(fingerprint), std::move(adapter)});
}

}  // namespace serve
