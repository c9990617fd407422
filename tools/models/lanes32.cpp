#include "slm/backend/gpu/lanes.hpp"
#include "slm/model/load_definition.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&, slm::backend::Lanes32,
                                                  const slm::LoadOptions&);
