// Routes with llama.cpp's names that answer immediately.
#include <utility>

#include "api/api.hpp"
#include "api/llama_request.hpp"
#include "api/served_model.hpp"

namespace serve {

namespace {

OrderedJson text_in(const OrderedJson& info, const char* name) {
  const auto found = info.find(name);
  return found != info.end() && found->is_string() ? *found : OrderedJson("");
}

}  // namespace

Ready Api::props(const HttpRequest&) const {
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
Ready Api::slots(const HttpRequest&) const {
  const std::size_t running = service_->stats().running;
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < options_.most_running; ++i) {
    list.push_back({{"id", i}, {"n_ctx", model_.info.context}, {"speculative", false}, {"is_processing", i < running}});
  }
  return {.body = slm::json_text(list)};
}

Ready Api::apply_template(const HttpRequest& request) const {
  Ready answer;
  const slm::Json body = read_fields(request, on_apply_template, answer.headers);
  const Fields fields(body, request.body);
  asked_model(fields, model_);
  answer.body = slm::json_text(OrderedJson{{"prompt", read_messages(fields, model_, read_tools(fields)).text}});
  return answer;
}

}  // namespace serve
