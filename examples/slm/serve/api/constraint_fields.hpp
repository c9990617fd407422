// The fields of a request that constrain the form of its answer.
#pragma once

#include "api/fields.hpp"
#include "api/service.hpp"
#include "api/tool_fields.hpp"

namespace serve {

/// The constraint of a completion; null if no field has one. The fields must know their source, so that members of
/// objects are written in the order of the schema. Throws Refusal.
slm::ConstraintRef read_constraint(const Fields& fields, const ServedModel& model);

/// The constraint of a chat's answer: it begins where the reasoning ends, and includes a call if the request wants one,
/// or offers tools. Throws Refusal.
slm::ConstraintRef read_chat_constraint(const Fields& fields, const ServedModel& model, const ToolFields& tools,
                                        Reasoning reasoning);

}  // namespace serve
