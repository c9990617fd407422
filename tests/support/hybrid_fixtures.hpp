// The fixture models with recurrent layers.
#pragma once

#include <string>
#include <vector>

namespace slm::testing {

inline const std::vector<std::string> hybrid_fixtures = {"lfm2",          "lfm2-conv4-bias",   "lfm2-plain-width",
                                                         "qwen35",        "qwen35-text",       "qwen35-mha",
                                                         "lfm2moe",       "lfm2moe-scaled",    "qwen35moe",
                                                         "qwen3next",     "qwen3next-dense",   "bamba",
                                                         "granitehybrid", "granitehybrid-moe", "granitehybrid-groups",
                                                         "falcon-h1",     "falcon-h1-norm",    "nemotron-h",
                                                         "nemotron-h-moe"};

}  // namespace slm::testing
