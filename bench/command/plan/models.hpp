// The models that `slm bench plan` plans: shapes by name, a config.json, a folder or GGUF file.
#pragma once

#include <string>
#include <vector>

#include "bench/command/plan/cost.hpp"

namespace slm::bench::plan {

/// What --format takes: how weights are held. int4 is AWQ's, with embedding and head in 16 bits; q8_0 is GGUF's.
inline const std::vector<std::string> formats = {"f32", "f16", "bf16", "int4", "q8_0"};

/// Names of shapes that need no file.
std::vector<std::string> shape_names();

/// model: one of shape_names(), else a path. format: one of formats; empty: as the file stores it, bf16 where there is
/// none. on_processor: which holds codes of GGUF's blocks in fewer bits than a GPU does. Throws bench.unknown-shape,
/// bench.no-int4, and what reading files throws.
PlannedModel planned_model(const std::string& model, const std::string& format, bool on_processor = true);

}  // namespace slm::bench::plan
