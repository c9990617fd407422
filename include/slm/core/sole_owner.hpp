// is_sole_owner: whether an object has no other owners, so that it may be modified.
#pragma once

#include <memory>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Returns true if exactly `references` shared_ptr own the object. The caller must hold all of them and prevent copies.
/// Writes by former owners are then visible, which use_count() alone does not guarantee.
template <class T>
bool is_sole_owner(const std::shared_ptr<T>& object, long references = 1) {
  if (object.use_count() != references) return false;
  const std::shared_ptr<T> again = object;  // copying and releasing updates the count with acquire order
  return true;
}

}}}
