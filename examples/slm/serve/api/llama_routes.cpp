// Routes with llama.cpp's names that answer immediately.
#include <charconv>
#include <utility>

#include "api/llama_request.hpp"
#include "api/model_api.hpp"
#include "api/paths.hpp"
#include "api/served_model.hpp"

namespace serve {

namespace {

OrderedJson text_in(const OrderedJson& info, const char* name) {
  const auto found = info.find(name);
  return found != info.end() && found->is_string() ? *found : OrderedJson("");
}

}  // namespace

Ready ModelApi::props(const HttpRequest&) const {
  const LlamaRequest without_fields = llama_request_without_fields(model_, options_.reading);
  OrderedJson params = generation_settings(without_fields, 0, model_);
  params["seed"] = options_.reading.defaults.value("seed", -1);  // -1: random
  const OrderedJson& info = model_.tokenizer_info;
  return {.body = slm::json_text(OrderedJson{
              {"default_generation_settings", {{"n_ctx", model_.info.context}, {"params", std::move(params)}}},
              {"total_slots", options_.most_running},
              {"model_alias", model_.names.front()},
              {"model_path", model_.root},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"chat_template", text_in(info, "chat_template")},
              {"bos_token", text_in(info, "bos_token")},
              {"eos_token", text_in(info, "eos_token")},
              {"build_info", "slm-" + version_text()},
              {"is_sleeping", false}})};
}

/// As many entries as texts can run, the first ones busy: a text has no fixed slot.
Ready ModelApi::slots(const HttpRequest&) const {
  const std::size_t running = service_->stats().running;
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < options_.most_running; ++i) {
    list.push_back({{"id", i}, {"n_ctx", model_.info.context}, {"speculative", false}, {"is_processing", i < running}});
  }
  return {.body = slm::json_text(list)};
}

std::unique_ptr<Exchange> ModelApi::slot(const HttpRequest& request, const Wake& wake) {
  if (model_.slots == nullptr) {
    throw Refusal(501, "serve.no-slots", "This server saves no slots, since it was started without --slot-save-path.");
  }
  std::string_view number = without_last_slashes(request.path);
  number.remove_prefix(slot_path.size());
  SlotAction action{.action = query_value(request.query, "action").value_or("")};
  const auto [stop, fault] = std::from_chars(number.data(), number.data() + number.size(), action.id);
  const bool is_number = fault == std::errc{} && stop == number.data() + number.size();
  if (!is_number || !model_.slots->has(action.id)) {
    throw bad_field("id_slot", slm::text("is ", slm::quote(number), ", expected a number of 0 to ",
                                         options_.most_running - 1, " behind /slots/"));
  }
  HttpHeaders headers;
  slm::Json body = slm::Json::object();
  if (!request.body.empty()) body = read_fields(request, on_slots, headers);
  const Fields fields(body);
  asked_model(fields, model_);
  action.filename = fields.string("filename", "");
  action.tenant = read_tenant(fields);
  return with_headers(answer_slot(action, model_, *service_, cancel_, wake), std::move(headers));
}

Ready ModelApi::apply_template(const HttpRequest& request) const {
  Ready answer;
  const slm::Json body = read_fields(request, on_apply_template, answer.headers);
  const Fields fields(body, request.body);
  asked_model(fields, model_);
  answer.body = slm::json_text(OrderedJson{{"prompt", read_messages(fields, model_, read_tools(fields)).text}});
  return answer;
}

}  // namespace serve
