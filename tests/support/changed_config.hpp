// Fixtures with a changed config.json: the model that it describes, and how it is refused.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

namespace slm::testing {

inline Json config_of(const std::string& name) {
  return read_json_object(fixture(text("models/", name, "/config.json")));
}

/// changes: null removes a field, and a list replaces one.
inline Json changed_config(const std::string& name, const Json& changes) {
  Json config = config_of(name);
  config.merge_patch(changes);
  return config;
}

inline ModelDescription read_changed(const std::string& name, const Json& changes) {
  return read_config_json(changed_config(name, changes), "config.json");
}

/// The message of the error, or an empty string.
inline std::string fault_of_changed(const std::string& name, const Json& changes) {
  try {
    read_changed(name, changes);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// The id of the error of a folder with the fixture's weights, whose tensors are all read.
inline std::string error_of_changed(const std::string& name, const Json& changes) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << changed_config(name, changes);
  std::filesystem::copy_file(fixture(text("models/", name, "/model.safetensors")), folder.path() / "model.safetensors");
  return error_id([&] {
    const Checkpoint checkpoint(folder.path());
    for (const TensorName& tensor : checkpoint.names().all()) checkpoint.tensor(tensor.name, tensor.shape);
  });
}

}  // namespace slm::testing
