// Compares the output of slm_add_model() with the library's reading of the same files.
#include <iostream>
#include <slm/config/registry.hpp>
#include <slm/io/config_json.hpp>

#include "all_configs.hpp"

int main() try {
  int same = 0, different = 0;
  for_each_config([&](const slm::ModelConfig& written, const char* path) {
    const slm::ModelConfig read = slm::read_config_json(slm::read_json_object(path), path).config;
    ++(written == read ? same : different);
    if (written != read) std::cout << path << ": " << slm::difference(written, read) << '\n';
  });
  std::cout << same << " configs are what the library reads, " << different << " are not\n";
  return different == 0 ? 0 : 1;
} catch (const slm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
