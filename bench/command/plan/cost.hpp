// Memory, traffic and time of a model's step on several devices. A calculation, explained in docs/planning.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/command/plan/devices.hpp"
#include "slm/config/sizes.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm::bench::plan {

/// Storage of a matrix in the backends.
struct MatrixFormat {
  int element = 2;                      // bytes of a floating-point weight
  std::optional<CodeTiles> codes = {};  // if set: quantized, in these tiles

  std::int64_t bytes(std::int64_t out, std::int64_t in) const;
};

struct PlannedModel {
  std::string name, format;
  ModelConfig shape;
  bool tied = false;
  std::array<MatrixFormat, 4> layers = {};  // qkv, attention out, gate and up, down
  MatrixFormat table = {};                  // embedding and head
  KvFormat cache = KvFormat::f16;
};

/// A layout of replicas * tensor * stages devices.
struct Layout {
  int replicas = 1;  // copies of the whole model
  int tensor = 1;    // ranks that split every matrix by its outputs, and attention by its heads
  int stages = 1;    // pipeline stages

  std::int64_t devices() const { return std::int64_t{replicas} * tensor * stages; }
};

/// The work of a replica's step.
struct Rows {
  double rows = 1;       // tokens
  double outputs = 1;    // rows with logits
  double sequences = 1;  // sequences whose keys and values are read
  double context = 0;    // tokens per sequence
};

/// The cost of one step, on the rank and the stage with the most work.
struct StepCost {
  double weight_bytes = 0, cache_bytes = 0;  // bytes read
  double operations = 0;                     // arithmetic operations
  double traffic = 0;                        // bytes from other ranks
  double messages = 0;                       // gathers, broadcasts and sends, in sequence
  double memory_seconds = 0, arithmetic_seconds = 0, launch_seconds = 0, message_seconds = 0;

  double seconds() const { return std::max(memory_seconds, arithmetic_seconds) + launch_seconds + message_seconds; }
  /// The largest term: "memory", "arithmetic", "launches" or "messages".
  const char* bound() const;
};

/// Bytes of the matrices that one step of a rank reads, as ModelInfo::step_bytes. Of the embedding, one row.
double step_weight_bytes(const PlannedModel& model, const Layout& layout, int rank, int stage);
/// Bytes of all weights that a rank holds.
double held_weight_bytes(const PlannedModel& model, const Layout& layout, int rank, int stage);
/// Bytes that all ranks of a stage gather for one row in one layer.
double gathered_bytes(const ModelConfig& shape, int tensor);
/// Bytes of keys and values of one token in `layers` layers, on the rank with the most.
double cache_bytes(const PlannedModel& model, const Layout& layout, int layers);
/// Layers of a stage. The first stages have one more if the number does not divide.
int stage_layers(const ModelConfig& shape, int stages, int stage);

/// The cost on the slowest rank of a stage.
StepCost step_cost(const PlannedModel& model, const PlanDevice& device, const Layout& layout, int stage,
                   const Rows& rows);

/// The requested load.
struct Load {
  double sequences = 1;   // sequences that decode at the same time, on all replicas
  double context = 2048;  // tokens per sequence
  double requests_per_day = 0;
  double prompt = 0, answer = 0;  // tokens per request
};

/// The usable share of a device's memory. Activations and the driver use the rest.
inline constexpr double usable_memory = 0.9;

/// Figures of the fullest device, and of all devices together.
struct Plan {
  Layout layout;
  double weights = 0, cache = 0;  // bytes per device
  bool fits = false;
  double most_sequences = 0;      // sequences that fit, on all devices
  StepCost step;                  // of the slowest stage, for the sequences of one round
  double step_seconds = 0;        // between two tokens of a sequence, with all sequences
  double step_seconds_alone = 0;  // with one sequence
  double tokens_per_second = 0;   // all sequences
  // For a load of requests:
  double request_seconds = 0;   // from start to end, with all places in use
  double requests_per_day = 0;  // requests that these devices can serve
  double replicas_needed = 0;   // for the requested load
  double in_flight = 0;         // requests in flight at that load, by Little's law
};

Plan plan_of(const PlannedModel& model, const PlanDevice& device, const Layout& layout, const Load& load);

/// All layouts of `devices` devices. replicas, stages: fixed numbers; 0: any.
std::vector<Layout> layouts_of(const ModelConfig& shape, int devices, int replicas, int stages);

}  // namespace slm::bench::plan
