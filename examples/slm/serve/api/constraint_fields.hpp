// The fields of a request that constrain the form of its answer.
#pragma once

#include "api/fields.hpp"
#include "api/service.hpp"

namespace serve {

/// The constraint of the answer; null if no field has one. The fields must know their source, so that members of
/// objects are written in the order of the schema. Throws Refusal.
slm::ConstraintRef read_constraint(const Fields& fields, const ServedModel& model);

}  // namespace serve
