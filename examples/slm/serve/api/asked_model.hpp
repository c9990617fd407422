// AskedModel: the served model that a request names, and its adapter.
#pragma once

#include <cstdint>
#include <string>

#include "api/fields.hpp"
#include "api/service.hpp"

namespace serve {

struct AskedModel {
  std::string name;  // name in answers
  bool adapted = false;
  slm::AdapterLease adapter = {};  // set after bring()

  /// Whether the adapter is not loaded: it is still loading, or it failed.
  bool lacks_adapter() const { return adapter && adapter.digest() == 0; }
  /// Fingerprint of everything besides the request that affects an answer; valid once it has begun.
  std::string fingerprint(const ServedModel& model) const;
  /// The refusal for a failed answer: the adapter's error, or failed_by().
  Refusal refusal_for(const slm::Error& error) const;
};

/// The model that the request names, or the first. Throws Refusal, and Error like AdapterStore::ask.
AskedModel asked_model(const Fields& fields, const ServedModel& model);
/// Starts loading its adapter. Throws like asked_model().
void bring(AskedModel& asked, const ServedModel& model);

/// The refusal for an unknown model name.
Refusal unknown_model(const std::string& name);

}  // namespace serve
