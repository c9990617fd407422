// RankGroup: models distributed over the ranks of a program and controlled by rank 0.
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
#include "slm/core/os/path.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model_digest.hpp"
#include "slm/ranks/grid.hpp"
#include "slm/ranks/message.hpp"
#include "slm/ranks/team.hpp"

namespace slm { inline namespace v0_1 {

/// How a model is distributed over the ranks.
struct Sharing {
  int stages = 1;  // pipeline stages of equally many adjacent ranks, which split the matrices of their layers
  bool first_only_controls = false;  // rank 0 holds no weights and only controls the others
  /// Splits sums instead of gathering half of each layer's activations, and reduces them over the ranks of a stage in
  /// rank order. A row's result still depends only on its own sequence, but its last digits depend on the number of
  /// ranks.
  bool fast_reduce = false;
};

/// Rank 0 loads and uses models as in a single process: decoders, engines and servers do not depend on ranks.
/// The other ranks hold their shares of the weights and take part in each step:
///
///   const auto team = std::make_shared<slm::ranks::Team<C>>(ranks);
///   slm::RankGroup group(slm::backend::Cpu{1}, team);
///   if (ranks.rank() > 0) return group.follow();
///   const slm::AnyModel model = group.load(folder);
///
/// Models: a Registry. B: the backend of each rank. load<Models>() over Device is compiled in the source that calls it.
template <Backend B, ranks::Communicator C, class Models = Registry<>>
class RankGroup {
 public:
  using Device = backend::Split<B, C>;

  RankGroup(B device, std::shared_ptr<ranks::Team<C>> team) : device_(std::move(device)), team_(std::move(team)) {}

  /// Rank 0 only: like slm::load, on every rank. Each rank reads the folder under the same path. Throws ranks.pipeline,
  /// ranks.fast-reduce.
  AnyModel load(const std::filesystem::path& folder, const LoadOptions& options = {}, const Sharing& sharing = {}) {
    check(folder, sharing);
    if (options.head_tokens != 0) {
      throw Error("model.head-tokens", text("'", folder.string(), "': ranks support whole heads only"),
                  "Set LoadOptions::head_tokens to 0");
    }
    const int number = models_++;
    ranks::Message message;
    message.put(number).put(load_order).put(sharing.stages).put(sharing.first_only_controls).put(sharing.fast_reduce);
    message.put_text(std::filesystem::absolute(folder).string());
    message.put(options.weights).put(options.context).put(options.only_known).put(options.bits);
    message.put(options.cache_format.has_value()).put(options.cache_format.value_or(KvFormat::f32));
    message.put(device_.arithmetic()).put(digest_of(folder));
    std::shared_ptr<const ranks::Grid<C>> grid;
    {
      const auto speaks = team_->lock();
      team_->send_all(message);
      team_->together([&] { grid = grid_of(sharing); });
    }
    return slm::load<Models>(folder, Device(device_, team_, grid, number, sharing.fast_reduce), options);
  }

  /// Other ranks: executes rank 0's commands until the team ends. Throws ranks.different and the errors of loading.
  void follow() {
    struct Held {
      Device device;
      AnyModel model;
    };
    std::map<int, Held> models;
    while (std::optional<ranks::Message> message = team_->next()) {
      const int number = message->take<int>();
      const auto known = models.find(number);
      if (known != models.end()) {
        known->second.device.execute(*message);
      } else if (message->take<int>() == load_order) {
        Sharing sharing{.stages = message->take<int>()};
        sharing.first_only_controls = message->take<bool>();
        sharing.fast_reduce = message->take<bool>();
        Device device(device_, team_, grid_of(sharing), number, sharing.fast_reduce);
        models.emplace(number, Held{device, load_as_told(*message, device)});
      }
    }
  }

 private:
  static constexpr int load_order = 1;
  static constexpr std::size_t sample = 4096;  // bytes per tensor: a rank reads only its share

  static std::uint64_t digest_of(const std::filesystem::path& folder) {
    return model_digest(Checkpoint(folder), sample);
  }

  void check(const std::filesystem::path& folder, const Sharing& sharing) const {
    const Checkpoint checkpoint(folder);
    const int ranks = team_->ranks().size() - sharing.first_only_controls, layers = checkpoint.config().layers;
    if (ranks < 1 || sharing.stages < 1 || ranks % sharing.stages != 0 || sharing.stages > layers) {
      throw Error("ranks.pipeline",
                  text("'", folder.string(), "' with ", layers, " layers cannot form ", sharing.stages, " stages of ",
                       ranks, " ranks"),
                  "Use a number of stages that divides the number of ranks and is at most the number of layers");
    }
    if (const std::string_view shared = shared_by_stages(checkpoint, sharing.stages); !shared.empty()) {
      throw Error("ranks.pipeline",
                  text("'", folder.string(), "' has ", shared, ", so it cannot form ", sharing.stages, " stages"),
                  "Use one stage, whose ranks split every layer");
    }
    if (!sharing.fast_reduce || (ranks > sharing.stages && !B::own_memory)) return;
    throw Error("ranks.fast-reduce",
                text("'", folder.string(), "' cannot use fast_reduce: ",
                     B::own_memory ? "GPUs do not support it" : "each stage has only one rank"),
                "Give each stage several CPU ranks, or omit fast_reduce (--fast-reduce)");
  }

  /// Names data besides the residual stream that layers of several stages share; empty: none.
  static std::string_view shared_by_stages(const Checkpoint& checkpoint, int stages) {
    const ModelConfig& shape = checkpoint.config();
    if (stages == 1) return {};
    if (shape.has_streams()) return "several residual streams";
    if (shape.shapes.inputs != 0) return "own inputs of layers";
    const LayerCut cut{shape.layers, stages};
    for (int layer = 0; layer < shape.layers; ++layer) {
      const int source = kv_layer_of(shape, checkpoint.settings(), layer);
      if (source >= 0 && cut.stage_of(source) != cut.stage_of(layer))
        return "layers that read the keys and values of another stage";
    }
    return {};
  }

  /// A collective call: all ranks call it at the same time.
  std::shared_ptr<const ranks::Grid<C>> grid_of(const Sharing& sharing) {
    auto& grid = grids_[{sharing.stages, sharing.first_only_controls}];
    if (grid == nullptr) {
      grid = std::make_shared<const ranks::Grid<C>>(team_->ranks(), sharing.stages, sharing.first_only_controls);
      team_->keep(grid);
    }
    return grid;
  }

  AnyModel load_as_told(ranks::Message& message, const Device& device) {
    const std::filesystem::path folder = path_of(message.take_text());
    LoadOptions options{.weights = message.take<WeightType>(),
                        .context = message.take<int>(),
                        .cache_format = {},
                        .only_known = message.take<bool>(),
                        .bits = message.take<int>()};
    const bool has_format = message.take<bool>();
    const auto format = message.take<KvFormat>();
    if (has_format) options.cache_format = format;
    require_same("arithmetic", message.take<std::uint64_t>(), device_.arithmetic());
    require_same(text("checkpoint ", quote(folder.string())), message.take<std::uint64_t>(), digest_of(folder));
    return slm::load<Models>(folder, device, options);
  }

  void require_same(const std::string& what, std::uint64_t of_first, std::uint64_t own) const {
    if (of_first == own) return;
    throw Error("ranks.different",
                text("rank ", team_->ranks().rank(), " expected the same ", what, " as rank 0, found another"),
                "Give every rank the same files, program and kind of processor");
  }

  B device_;
  std::shared_ptr<ranks::Team<C>> team_;
  std::map<std::pair<int, bool>, std::shared_ptr<const ranks::Grid<C>>> grids_;  // by layout of the ranks
  int models_ = 0;
};

}}
