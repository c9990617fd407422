#include "api/asked_model.hpp"

#include <algorithm>

#include "api/served_model.hpp"

namespace serve {

namespace {

/// Calls use(adapter) with the store's adapter of this name.
template <class Use>
auto with_adapter(const std::string& name, const ServedModel& model, Use use) {
  if (model.adapters == nullptr) throw unknown_model(name);
  try {
    return use(*model.adapters);
  } catch (const slm::Error& error) {
    if (error.id() == "adapter.unknown") throw unknown_model(name);
    throw;
  }
}

}  // namespace

Refusal unknown_model(const std::string& name) {
  return Refusal(404, "serve.unknown-model", slm::text("The model `", slm::excerpt(name), "` does not exist."))
      .of("model")
      .coded("model_not_found");
}

AskedModel asked_model(const Fields& fields, const ServedModel& model) {
  const std::string name = fields.string("model", model.names.front());
  if (std::find(model.names.begin(), model.names.end(), name) != model.names.end()) return {model.names.front()};
  try {
    with_adapter(name, model, [&](slm::AdapterStore& adapters) { return adapters.folder_of(name); });
  } catch (const Refusal&) {
    if (model.any_name) return {model.names.front()};
    throw;
  }
  return {.name = name, .adapted = true};
}

void bring(AskedModel& asked, const ServedModel& model) {
  if (!asked.adapted) return;
  asked.adapter =
      with_adapter(asked.name, model, [&](slm::AdapterStore& adapters) { return adapters.lease(asked.name); });
}

std::string AskedModel::fingerprint(const ServedModel& model) const {
  return adapter ? slm::text(model.fingerprint, "-", hex(adapter.digest())) : model.fingerprint;
}

Refusal AskedModel::refusal_for(const slm::Error& error) const {
  if (error.id() == "structured.no-token") return refused_by(error);  // the request's grammar does not fit the model
  if (!lacks_adapter() || error.id().starts_with("gpu.") || error.id().starts_with("backend."))
    return failed_by(error.id());
  std::string message = error.what();  // it may contain the folder's server-side path
  const std::string folder = adapter.folder().string();
  for (std::size_t at = message.find(folder); !folder.empty() && at != message.npos; at = message.find(folder, at)) {
    message.replace(at, folder.size(), adapter.name());
  }
  return Refusal(400, error.id(), message).of("model");
}

}  // namespace serve
