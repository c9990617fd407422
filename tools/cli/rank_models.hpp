// Models distributed over the program's ranks, on any device. Needs MPI.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/os/path.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/rank_group.hpp"
#include "slm/ranks/mpi.hpp"
#include "slm/ranks/team.hpp"

namespace cli {

/// Timeout for other ranks. Throws ranks.launcher.
std::chrono::seconds patience();

/// Collective.
template <slm::ranks::Communicator C>
std::shared_ptr<slm::ranks::Team<C>> team_of(const C& ranks) {
  return std::make_shared<slm::ranks::Team<C>>(ranks, std::chrono::milliseconds(patience()) / 4);
}

class RankModels {
 public:
  RankModels() = default;
  RankModels(const RankModels&) = delete;
  RankModels& operator=(const RankModels&) = delete;
  /// On rank 0: ends the others' follow(), unless the team has failed.
  virtual ~RankModels() = default;

  /// On rank 0; see slm::RankGroup.
  virtual slm::AnyModel load(const std::string& folder, const slm::LoadOptions& options,
                             const slm::Sharing& sharing) = 0;
  /// On the other ranks.
  virtual void follow() = 0;
  /// See slm::ranks::Team.
  virtual std::string failure() = 0;
};

/// Created collectively.
template <slm::Backend B, slm::ranks::Communicator C>
class RankModelsOn final : public RankModels {
 public:
  RankModelsOn(B device, const C& ranks) : team_(team_of(ranks)), group_(std::move(device), team_) {}

  slm::AnyModel load(const std::string& folder, const slm::LoadOptions& options, const slm::Sharing& sharing) override {
    return group_.load(slm::path_of(folder), options, sharing);
  }
  void follow() override { group_.follow(); }
  std::string failure() override { return team_->failure(); }

 private:
  std::shared_ptr<slm::ranks::Team<C>> team_;
  slm::RankGroup<B, C> group_;
};

}  // namespace cli
