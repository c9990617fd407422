#include "api/adapter_routes.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "api/asked_model.hpp"
#include "slm/core/os/path.hpp"

namespace serve {

namespace {

std::string required(const Fields& fields, const char* name) {
  std::string value = fields.string(name, "");
  if (value.empty()) throw bad_field(name, "is absent, expected a text");
  return value;
}

class LoadExchange final : public Exchange {
 public:
  LoadExchange(std::string name, slm::AdapterLease adapter, const std::function<void()>& wake)
      : asked_{.name = std::move(name), .adapted = true, .adapter = std::move(adapter)} {
    asked_.adapter.on_news(wake);
    asked_.adapter.press();
  }

  void poll(HttpOutput& out) override {
    try {
      if (asked_.adapter.take() == nullptr) return;
    } catch (const slm::Error& error) {
      return answer_refusal(out, asked_.refusal_for(error));
    } catch (const std::exception&) {
      return answer_refusal(out, failed_by("serve.engine-fault"));
    }
    out.answer(200, "text/plain", slm::text("Success: LoRA adapter '", asked_.name, "' added successfully."));
  }

 private:
  AskedModel asked_;
};

}  // namespace

std::unique_ptr<Exchange> load_adapter(const slm::Json& body, const ServedModel& model,
                                       const std::function<void()>& wake) {
  const Fields fields(body);
  const std::string name = required(fields, "lora_name"), path = required(fields, "lora_path");
  const bool replace = fields.boolean("load_inplace", false);
  const auto is_control = [](char byte) { return static_cast<unsigned char>(byte) < 0x20; };
  if (path.size() > 4096 || std::any_of(path.begin(), path.end(), is_control)) {
    throw bad_field("lora_path", "is not the path of a folder");
  }
  const std::filesystem::path folder =
      model.adapters->folder() / slm::path_of(path);  // or the path itself if it is absolute
  return std::make_unique<LoadExchange>(name, model.adapters->load(name, folder, {.replace = replace, .inside = true}),
                                        wake);
}

std::string unload_adapter(const slm::Json& body, const ServedModel& model) {
  const std::string name = required(Fields(body), "lora_name");
  try {
    model.adapters->unload(name);
  } catch (const slm::Error& error) {
    if (error.id() != "adapter.unknown") throw;
    throw unknown_model(name).of("lora_name");
  }
  return slm::text("Success: LoRA adapter '", name, "' removed successfully.");
}

}  // namespace serve
