// RankGroup: models over the ranks of a program, which the first rank runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "slm/backend/split.hpp"
#include "slm/core/error.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model_digest.hpp"
#include "slm/ranks/grid.hpp"
#include "slm/ranks/letter.hpp"
#include "slm/ranks/team.hpp"

namespace slm { inline namespace v0_1 {

/// How a model lies on the ranks.
struct Sharing {
  int stages = 1;  // of layers, with as many ranks each: neighbours, which share out the matrices of their layers
  bool first_stands_apart = false;  // rank 0 holds nothing, and has the others compute
  /// Half of what a layer gathers is not: sums are cut, and added over the ranks of a stage in their order. What a row
  /// gives still depends on its own sequence alone, but its last digits on the number of ranks.
  bool fast_reduce = false;
};

/// The first rank loads models and uses them as if it were alone: decoders, engines and servers know nothing of ranks.
/// The others hold their shares of the weights, and take their part in each step of the first:
///
///   const auto team = std::make_shared<slm::ranks::Team<C>>(ranks);
///   slm::RankGroup group(slm::backend::Cpu{1}, team);
///   if (ranks.rank() > 0) return group.follow();
///   const slm::AnyModel model = group.load(folder);
///
/// Models: a Registry; B: where each rank computes. load<Models>() over Device is compiled where it is asked for.
template <Backend B, ranks::Communicator C, class Models = Registry<>>
class RankGroup {
 public:
  using Device = backend::Split<B, C>;

  RankGroup(B device, std::shared_ptr<ranks::Team<C>> team) : device_(std::move(device)), team_(std::move(team)) {}

  /// On rank 0: as slm::load, on every rank. The folder is read by each, by the same name. Throws ranks.pipeline,
  /// ranks.fast-reduce.
  AnyModel load(const std::filesystem::path& folder, const LoadOptions& options = {}, const Sharing& sharing = {}) {
    check(folder, sharing);
    const int number = models_++;
    ranks::Letter letter;
    letter.put(number).put(load_order).put(sharing.stages).put(sharing.first_stands_apart).put(sharing.fast_reduce);
    letter.put_text(std::filesystem::absolute(folder).string());
    letter.put(options.weights).put(options.context).put(options.only_known);
    letter.put(options.cache_format.has_value()).put(options.cache_format.value_or(KvFormat::f32));
    letter.put(device_.arithmetic()).put(digest_of(folder));
    std::shared_ptr<const ranks::Grid<C>> grid;
    {
      const auto speaks = team_->lock();
      team_->tell(letter);
      team_->together([&] { grid = grid_of(sharing); });
    }
    return slm::load<Models>(folder, Device(device_, team_, grid, number, sharing.fast_reduce), options);
  }

  /// On the other ranks: does what rank 0 tells, until its team is at its end. Throws ranks.different, and whatever
  /// loading throws.
  void follow() {
    struct Held {
      Device device;
      AnyModel model;
    };
    std::map<int, Held> models;
    while (std::optional<ranks::Letter> letter = team_->next()) {
      const int number = letter->take<int>();
      const auto known = models.find(number);
      if (known != models.end()) {
        known->second.device.obey(*letter);
      } else if (letter->take<int>() == load_order) {
        Sharing sharing{.stages = letter->take<int>()};
        sharing.first_stands_apart = letter->take<bool>();
        sharing.fast_reduce = letter->take<bool>();
        Device device(device_, team_, grid_of(sharing), number, sharing.fast_reduce);
        models.emplace(number, Held{device, load_as_told(*letter, device)});
      }
    }
  }

 private:
  static constexpr int load_order = 1;
  static constexpr std::size_t sample = 4096;  // bytes of each tensor: a rank reads no more than its share

  static std::uint64_t digest_of(const std::filesystem::path& folder) {
    return model_digest(Checkpoint(folder), sample);
  }

  void check(const std::filesystem::path& folder, const Sharing& sharing) const {
    const int ranks = team_->ranks().size() - sharing.first_stands_apart, layers = Checkpoint(folder).config().layers;
    if (ranks < 1 || sharing.stages < 1 || ranks % sharing.stages != 0 || sharing.stages > layers) {
      throw Error("ranks.pipeline",
                  text("'", folder.string(), "' with ", layers, " layers was to be ", sharing.stages, " stages of ",
                       ranks, " ranks"),
                  "Give a number of stages that divides the number of ranks, and is at most that of the layers");
    }
    if (!sharing.fast_reduce || (ranks > sharing.stages && !B::own_memory)) return;
    throw Error("ranks.fast-reduce",
                text("'", folder.string(), "' was to be added up over ranks, ",
                     B::own_memory ? "which GPUs do not do" : "but each stage of its layers has one rank only"),
                "Give each stage several ranks on processors, or leave out fast_reduce (--fast-reduce)");
  }

  /// All ranks ask for it at once.
  std::shared_ptr<const ranks::Grid<C>> grid_of(const Sharing& sharing) {
    auto& grid = grids_[{sharing.stages, sharing.first_stands_apart}];
    if (grid == nullptr) {
      grid = std::make_shared<const ranks::Grid<C>>(team_->ranks(), sharing.stages, sharing.first_stands_apart);
      team_->keep(grid);
    }
    return grid;
  }

  AnyModel load_as_told(ranks::Letter& letter, const Device& device) {
    const std::filesystem::path folder = letter.take_text();
    LoadOptions options{.weights = letter.take<WeightType>(),
                        .context = letter.take<int>(),
                        .cache_format = {},
                        .only_known = letter.take<bool>()};
    const bool has_format = letter.take<bool>();
    const auto format = letter.take<KvFormat>();
    if (has_format) options.cache_format = format;
    require_same("way to compute", letter.take<std::uint64_t>(), device_.arithmetic());
    require_same(text("checkpoint ", quote(folder.string())), letter.take<std::uint64_t>(), digest_of(folder));
    return slm::load<Models>(folder, device, options);
  }

  void require_same(const std::string& what, std::uint64_t of_first, std::uint64_t own) const {
    if (of_first == own) return;
    throw Error("ranks.different", text("rank ", team_->ranks().rank(), " has another ", what, " than rank 0"),
                "Give every rank the same files, the same program and the same kind of processor");
  }

  B device_;
  std::shared_ptr<ranks::Team<C>> team_;
  std::map<std::pair<int, bool>, std::shared_ptr<const ranks::Grid<C>>> grids_;  // by how they share
  int models_ = 0;
};

}}
