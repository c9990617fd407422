#include "slm/backend/reference/reference.hpp"
#include "slm/model/load_definition.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&, slm::backend::Reference,
                                                  const slm::LoadOptions&);
