// The program behind slm_add_model(): reads a config.json as slm::load() does, and writes it as a compile-time config.
//   model_header <config.json> <name of the struct> <header to write>
#include <iostream>

#include "slm/config/registry.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/write_file.hpp"

int main(int argc, char** argv) try {
  if (argc != 4) throw slm::Error("usage: model_header <config.json> <name> <header>");
  const std::string file = argv[1], name = argv[2];
  const slm::ModelDescription model = slm::read_config_json(slm::read_json_object(file), file);
  slm::write_text_file(argv[3], slm::text("// Written by slm_add_model().\n"
                                          "#pragma once\n\n"
                                          "#include <string_view>\n\n"
                                          "#include \"slm/config/model_config.hpp\"\n\n"
                                          "namespace slm::configs {\n\n",
                                          slm::source_of(model.config, name), "\n\n}  // namespace slm::configs\n"));
} catch (const std::exception& error) {
  std::cerr << "slm_add_model: " << error.what() << '\n';
  return 1;
}
