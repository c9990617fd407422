#include "api/slots.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "api/ready_exchange.hpp"
#include "api/service.hpp"
#include "slm/core/cancel.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/path_name.hpp"
#include "slm/text/utf8.hpp"

namespace serve {

namespace {

constexpr const char* file_format = "slm-slot-1";

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Whether a file of this name is directly in the folder on every system.
bool is_file_name(const std::string& name) {
  constexpr std::string_view excluded = "/\\:*?\"<>|\x7f";
  const auto is_bad = [&](char byte) {
    return static_cast<unsigned char>(byte) < 0x20 || excluded.find(byte) != excluded.npos;
  };
  return !name.empty() && name.size() <= 200 && slm::utf8::is_valid(name) && name.find("..") == name.npos &&
         name.front() != ' ' && name.back() != ' ' && name.front() != '.' && name.back() != '.' &&
         std::none_of(name.begin(), name.end(), is_bad);
}

void check_name(const std::string& name) {
  if (is_file_name(name)) return;
  throw bad_field("filename",
                  slm::text("is ", slm::quote(name), ", expected the name of a file, without `/` and `..`"));
}

Refusal bad_file(const std::string& name, const std::string& found) {
  return Refusal(400, "serve.slot-file", slm::text("The file ", slm::quote(name), " ", found, ".")).of("filename");
}

/// Waits until the engine has computed the text.
class RestoreExchange final : public Exchange {
 public:
  RestoreExchange(SlotAction action, SlotText text, std::size_t bytes, const ServedModel& model, Service& service,
                  const slm::CancelToken& cancel, const std::function<void()>& wake)
      : action_(std::move(action)), text_(std::move(text)), bytes_(bytes), slots_(model.slots) {
    slm::Request request{.prompt = text_.tokens, .sampling = {.max_new_tokens = 1}, .tenant = text_.tenant};
    const auto most = static_cast<std::size_t>(model.info.context) - 1;
    request.prompt.resize(std::min(request.prompt.size(), most));
    if (request.prompt.empty()) return;
    request.cancel = cancel;
    try {
      answer_.emplace(service.submit(std::move(request), {}, wake));
    } catch (const slm::Error& error) {
      throw refused_by(error);
    }
  }

  void poll(HttpOutput& out) override {
    if (answer_) {
      try {
        while (answer_->try_next()) continue;  // its token is of no use
      } catch (const slm::Error& error) {
        return answer_refusal(out, failed_by(error.id()));
      } catch (const std::exception&) {
        return answer_refusal(out, failed_by("serve.engine-fault"));
      }
      if (!answer_->over()) return;
      if (answer_->stats().finish_reason == slm::FinishReason::cancelled) return answer_refusal(out, shutting_down());
    }
    const std::size_t count = text_.tokens.size();
    slots_->keep(action_.id, std::move(text_));
    out.answer(200, "application/json",
               slm::json_text(OrderedJson{{"id_slot", action_.id},
                                          {"filename", action_.filename},
                                          {"n_restored", count},
                                          {"n_read", bytes_},
                                          {"timings", {{"restore_ms", milliseconds_since(begin_)}}}}));
  }

 private:
  SlotAction action_;
  SlotText text_;
  std::size_t bytes_;
  std::shared_ptr<Slots> slots_;
  Clock::time_point begin_ = Clock::now();
  std::optional<slm::Answer> answer_;
};

}  // namespace

void Slots::keep(int id, SlotText text) {
  const std::lock_guard lock(mutex_);
  texts_[id] = std::move(text);
}

SlotText Slots::text_of(int id) const {
  const std::lock_guard lock(mutex_);
  const auto found = texts_.find(id);
  return found == texts_.end() ? SlotText{} : found->second;
}

std::size_t Slots::save(const std::string& name, const SlotText& text, const ServedModel& model) const {
  check_name(name);
  const std::string file = slm::json_text(OrderedJson{
      {"format", file_format}, {"model", model.names.front()}, {"vocab", model.info.vocab}, {"tokens", text.tokens}});
  const std::lock_guard lock(writing_);
  const std::filesystem::path path = folder_ / slm::path_of(name), partial = slm::detail::partial_path(path);
  std::ofstream out(partial, std::ios::binary);
  out << file;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(partial, path, error);
  if (out && !error) return file.size();
  std::filesystem::remove(partial, error);
  throw Refusal(500, "serve.slot-file", slm::text("The file ", slm::quote(name), " cannot be written.")).of("filename");
}

std::size_t Slots::read(const std::string& name, std::vector<slm::Token>& tokens, const ServedModel& model) const {
  check_name(name);
  const auto context = static_cast<std::size_t>(model.info.context);
  const std::size_t most = 4096 + 12 * context;  // bytes
  std::error_code error;
  const std::filesystem::path path = folder_ / slm::path_of(name);
  const bool is_file = std::filesystem::is_regular_file(path, error);
  std::ifstream in(path, std::ios::binary);
  if (!is_file || !in) throw bad_file(name, "does not exist");
  std::string file(most + 1, '\0');
  in.read(file.data(), static_cast<std::streamsize>(file.size()));
  file.resize(static_cast<std::size_t>(in.gcount()));
  if (file.size() > most) throw bad_file(name, "is longer than the context of the model");
  slm::Json json;
  try {
    json = slm::parse_json_object(file, "the file", "Save the slot again");
  } catch (const slm::Error&) {
    throw bad_file(name, "is not a saved slot");
  }
  if (json.value("format", slm::Json()) != file_format || !json.value("tokens", slm::Json()).is_array()) {
    throw bad_file(name, "is not a saved slot");
  }
  if (json.value("model", slm::Json()) != model.names.front() || json.value("vocab", slm::Json()) != model.info.vocab) {
    throw bad_file(name, "belongs to another model");
  }
  for (const slm::Json& token : json["tokens"]) {
    const bool is_token =
        token.is_number_unsigned() && token.get<std::uint64_t>() < static_cast<std::uint64_t>(model.info.vocab);
    if (!is_token) throw bad_file(name, "has tokens that the model does not have");
    tokens.push_back(token.get<slm::Token>());
  }
  if (tokens.size() > context) throw bad_file(name, "is longer than the context of the model");
  return file.size();
}

std::unique_ptr<Exchange> answer_slot(const SlotAction& action, const ServedModel& model, Service& service,
                                      const slm::CancelToken& cancel, const std::function<void()>& wake) {
  Slots& slots = *model.slots;
  const auto ready = [](OrderedJson json) {
    return std::make_unique<ReadyExchange>(Ready{.body = slm::json_text(json)});
  };
  if (action.action == "restore") {
    SlotText text{.tenant = action.tenant};
    const std::size_t bytes = slots.read(action.filename, text.tokens, model);
    return std::make_unique<RestoreExchange>(action, std::move(text), bytes, model, service, cancel, wake);
  }
  const SlotText text = slots.text_of(action.id);
  if (action.action == "erase") {
    slots.keep(action.id, {});
    return ready({{"id_slot", action.id}, {"n_erased", text.tokens.size()}});
  }
  if (action.action != "save") {
    throw bad_field("action",
                    slm::text("is ", slm::quote(action.action), ", expected save, restore or erase in the query"));
  }
  const auto begin = Clock::now();
  const std::size_t bytes = slots.save(action.filename, text, model);
  return ready({{"id_slot", action.id},
                {"filename", action.filename},
                {"n_saved", text.tokens.size()},
                {"n_written", bytes},
                {"timings", {{"save_ms", milliseconds_since(begin)}}}});
}

}  // namespace serve
