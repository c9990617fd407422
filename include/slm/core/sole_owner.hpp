// is_sole_owner: whether nobody else refers to an object, so that it may be written.
#pragma once

#include <memory>

namespace slm { inline namespace v0_1 { namespace detail {

/// Whether `references` shared_ptr refer to the object, all of which the caller knows and keeps others from copying.
/// What other owners did before they let go of it is then seen here: use_count() alone does not promise that.
template <class T>
bool is_sole_owner(const std::shared_ptr<T>& object, long references = 1) {
  if (object.use_count() != references) return false;
  const std::shared_ptr<T> again = object;  // its end takes part in the count as theirs did, and acquires
  return true;
}

}}}
