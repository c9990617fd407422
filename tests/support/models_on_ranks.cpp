// Models over ranks as threads.
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/backend/split.hpp"
#include "slm/model/load_definition.hpp"
#include "slm/ranks/threads.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&,
                                                  slm::backend::Split<slm::backend::Cpu, slm::ranks::Threads>,
                                                  const slm::LoadOptions&);
template slm::AnyModel slm::load<slm::Registry<>>(const std::filesystem::path&,
                                                  slm::backend::Split<slm::backend::Reference, slm::ranks::Threads>,
                                                  const slm::LoadOptions&);
