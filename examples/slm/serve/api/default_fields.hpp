// Values for fields that requests leave out, as the operator sets them.
#pragma once

#include <string>
#include <vector>

#include "api/field_table.hpp"

namespace serve {

/// Reads `FIELD=VALUE` with a number, true, false or a text. Throws Error ("serve.bad-default").
slm::Json parse_defaults(const std::vector<std::string>& settings);

/// Sets the fields that the route follows and the body lacks.
void add_defaults(slm::Json& body, FieldRoute route, const slm::Json& defaults);

}  // namespace serve
