// Models over ranks with one emulated GPU each.
#include "slm/backend/split.hpp"
#include "slm/model/load_definition.hpp"
#include "support/queued_lanes.hpp"

template slm::AnyModel slm::load<slm::Registry<>>(
    const std::filesystem::path&,
    slm::backend::Split<slm::testing::Queued32, slm::testing::NcclOf<slm::testing::Queued32>>, const slm::LoadOptions&);
template slm::AnyModel slm::load<slm::Registry<>>(
    const std::filesystem::path&,
    slm::backend::Split<slm::testing::Queued64, slm::testing::NcclOf<slm::testing::Queued64>>, const slm::LoadOptions&);
