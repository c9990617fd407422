// Errors of config.json files that slm refuses.
#pragma once

#include <string>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline Error unsupported(const std::string& file, const std::string& what) {
  return Error("config.unsupported", text("'", file, "' requires ", what),
               "See docs/models.md for the supported families and their features");
}

inline Error contradictory(const std::string& file, const std::string& what) {
  return Error("config.contradictory", text("'", file, "' contradicts itself: ", what),
               "Copy the file from the model's original repository");
}

}}}
