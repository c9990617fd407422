// Helpers of the readers of quantization settings.
#pragma once

#include <string>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The Error for a recognised but unsupported scheme.
inline Error foreign_quantization(const std::string& file, const std::string& what) {
  return Error("quant.unsupported-method", text("'", file, "' describes ", what),
               "slm supports AWQ, GPTQ, FP8, compressed-tensors and Quark: use such a repository of the model, or "
               "quantize the floating-point model with slm quantize");
}

inline Error foreign_setting(const std::string& file, const std::string& what) {
  return Error("quant.unsupported-setting", text("'", file, "': ", what),
               "Use another checkpoint of the model (docs/models.md), or quantize the floating-point model with slm "
               "quantize");
}

inline std::string lower_case(std::string word) {
  for (char& letter : word) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return word;
}

/// A group size as all writers state it: positive, or -1 for whole rows; 0 if absent.
inline int read_group_size(const JsonFields& fields, const char* name) {
  if (!fields.has(name)) return 0;
  const int group = fields.integer(name, -1, 1 << 22);
  if (group == 0) throw fields.bad(name, "a positive number, or -1 for whole rows", fields.at(name));
  return group;
}

/// Whether a field has content; empty objects and lists count as absent.
inline bool is_stated(const JsonFields& fields, const char* name) {
  return fields.has(name) && !fields.at(name).empty();
}

}}}
