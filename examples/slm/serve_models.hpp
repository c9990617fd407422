// The models of slm serve: their options, and their properties in answers.
#pragma once

#if SLM_HAS_SERVER

#include <cstdint>
#include <string>
#include <vector>

#include "api/models.hpp"
#include "cli.hpp"

namespace cli {

struct ModelsOptions {
  std::vector<std::string> named;  // NAME=PATH or NAME=PATH,draft=PATH
  std::string folder;              // its sub-folders and GGUF files are models
  std::uint64_t memory = 0;        // bytes of all models; 0: the free memory

  bool given() const { return !named.empty() || !folder.empty(); }
};

/// The backend in the fingerprint of a model.
std::string fingerprint_of(const ModelOptions& models);

/// The sampling defaults of generation_config.json.
OrderedJson json_of(const slm::SuggestedSampling& suggested);

/// The models that the options name. Throws serve.model-list.
std::vector<serve::ModelSource> model_sources(const ModelsOptions& options);

/// Facts of a model that is not loaded. Throws Error like estimate().
serve::ModelOutline outline_of(const serve::ModelSource& source, const ModelOptions& models,
                               const slm::EngineOptions& engine);

/// The list without the functions that load. Throws serve.model-list and serve.model-memory, and for models that the
/// command line names, the errors of their files.
serve::ModelList make_model_list(const ModelsOptions& options, const ModelOptions& models,
                                 const slm::EngineOptions& engine);

}  // namespace cli

#endif
