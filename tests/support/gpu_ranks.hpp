// Models over ranks with one emulated GPU each; a simulated NCCL gathers their memory.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "slm/model/rank_group.hpp"
#include "slm/ranks/team.hpp"
#include "support/in_turn.hpp"
#include "support/queued_lanes.hpp"
#include "support/rank_texts.hpp"

namespace slm::testing {

/// How each rank has ended; the first ran run(load), where load(folder, options) is a model over all ranks.
template <class B>
std::vector<End> on_devices(Ranks how, const auto& run_here,
                            std::chrono::milliseconds most = std::chrono::seconds(60)) {
  return run(
      how.size,
      [&](const ranks::Threads& host) {
        const B device{typename B::Runtime(host.rank()), {}};
        const auto team = std::make_shared<ranks::Team<NcclOf<B>>>(NcclOf<B>(host, device.runtime(), most));
        RankGroup group(device, team);
        if (host.rank() > 0) return group.follow();
        run_here([&](const std::filesystem::path& folder, const LoadOptions& options) {
          return group.load(folder, options, {.stages = how.stages, .first_only_controls = how.first_only_controls});
        });
      },
      most);
}

/// Any number of ranks with one device each produce the bits of one device: answer(draft, target).
template <class B>
void check_devices(const std::filesystem::path& folder, std::initializer_list<Ranks> sizes, const auto& answer,
                   LoadOptions draft = {.weights = WeightType::bf16}, LoadOptions target = {}) {
  using Alone = backend::Gpu<typename B::Runtime::Base>;
  const Bits expected = answer(load(folder, Alone{}, draft), load(folder, Alone{}, target));
  REQUIRE(expected.bytes.size() > 1000);
  for (const Ranks how : in_turn(sizes)) {
    CAPTURE(folder, B::name, how.size, how.stages, how.first_only_controls);
    const Fresh fresh;
    blind_waits = 0;
    Bits found;
    const auto ends = on_devices<B>(
        how, [&](const auto& load_here) { found = answer(load_here(folder, draft), load_here(folder, target)); });
    for (const End& end : ends) CHECK(end.sentence == "");
    CHECK(found == expected);
    CHECK(blind_waits == 0);
  }
}

}  // namespace slm::testing
