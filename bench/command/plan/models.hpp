// Models for `slm bench plan`: a named shape, a config.json, a model folder or a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "bench/command/plan/cost.hpp"

namespace slm::bench::plan {

/// Values of --format: the weights' storage. int4 is AWQ's with embedding and head in 16 bits, q8_0 is GGUF's.
inline const std::vector<std::string> formats = {"f32", "f16", "bf16", "int4", "q8_0"};

/// Names of shapes without a file.
std::vector<std::string> shape_names();

/// model: one of shape_names(), else a path. format: one of formats; empty: as stored in the file, bf16 for a named
/// shape. on_processor: the CPU stores the codes of GGUF blocks in fewer bits than a GPU. Throws bench.unknown-shape,
/// bench.no-int4, and the exceptions of reading files.
PlannedModel planned_model(const std::string& model, const std::string& format, bool on_processor = true);

}  // namespace slm::bench::plan
