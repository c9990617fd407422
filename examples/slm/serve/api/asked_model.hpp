// AskedModel: which of the served models a request is for, and how it gets the adapter that makes it that model.
#pragma once

#include <cstdint>
#include <string>

#include "api/fields.hpp"
#include "api/service.hpp"

namespace serve {

struct AskedModel {
  std::string name;  // as answers say it
  bool adapted = false;
  slm::AdapterLease adapter = {};  // once it is brought

  /// Whether the adapter may still come.
  bool is_coming() const { return adapter && !adapter.settled(); }
  /// Of what an answer depends on besides its request, once it has begun.
  std::string fingerprint(const ServedModel& model) const;
  /// Why an answer came to nothing: the adapter could not be brought, which the client is told, or what failed_by()
  /// says.
  Refusal refusal_for(const slm::Error& error) const;
};

/// The model that the request names, or the first. Throws Refusal, and Error as AdapterStore::ask.
AskedModel asked_model(const Fields& fields, const ServedModel& model);
/// Lets its adapter be loaded. Throws as asked_model().
void bring(AskedModel& asked, const ServedModel& model);

/// There is no such model.
Refusal unknown_model(const std::string& name);

}  // namespace serve
