// What a step of a model costs on several devices: memory, traffic, time. Arithmetic alone; docs/planning.md explains
// it.
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

/// How the backends hold a matrix.
struct MatrixFormat {
  int element = 2;                      // bytes of a weight in floating point
  std::optional<CodeTiles> codes = {};  // else tiles of codes, of whatever extents

  std::int64_t bytes(std::int64_t out, std::int64_t in) const;
};

struct PlannedModel {
  std::string name, format;
  ModelConfig shape;
  bool tied = false;
  std::array<MatrixFormat, 4> layers = {};  // qkv, attention out, gate and up, down
  MatrixFormat table = {};                  // of embedding and head
  KvFormat cache = KvFormat::f16;
};

/// How devices share the work: replicas * tensor * stages of them.
struct Way {
  int replicas = 1;  // whole models
  int tensor = 1;    // ranks that share every matrix by its outputs, and attention by its heads
  int stages = 1;    // of a pipeline of layers

  std::int64_t devices() const { return std::int64_t{replicas} * tensor * stages; }
};

/// What a replica computes together.
struct Rows {
  double rows = 1;       // tokens
  double outputs = 1;    // that have logits
  double sequences = 1;  // whose keys and values are read
  double context = 0;    // tokens of each
};

/// Of one step, on the rank and in the stage that has most to do.
struct StepCost {
  double weight_bytes = 0, cache_bytes = 0;  // read
  double operations = 0;                     // of arithmetic
  double traffic = 0;                        // bytes from other ranks
  double messages = 0;                       // gathers, broadcasts and sends, one after the other
  double memory_seconds = 0, arithmetic_seconds = 0, launch_seconds = 0, message_seconds = 0;

  double seconds() const { return std::max(memory_seconds, arithmetic_seconds) + launch_seconds + message_seconds; }
  /// "memory", "arithmetic", "launches", "messages": what takes longest.
  const char* bound() const;
};

/// Bytes of the matrices that one step of a rank reads: what ModelInfo::step_bytes counts. The embedding gives a row.
double step_weight_bytes(const PlannedModel& model, const Way& way, int rank, int stage);
/// All bytes of weights that it holds.
double held_weight_bytes(const PlannedModel& model, const Way& way, int rank, int stage);
/// Bytes that all ranks of a stage together gather for a row in one layer.
double gathered_bytes(const ModelConfig& shape, int tensor);
/// Bytes of keys and values of one token in so many layers, on the rank that has most.
double cache_bytes(const PlannedModel& model, const Way& way, int layers);
/// Layers of a stage: the first stages have one more where they do not divide.
int stage_layers(const ModelConfig& shape, int stages, int stage);

/// Of the stage's slowest rank.
StepCost step_cost(const PlannedModel& model, const PlanDevice& device, const Way& way, int stage, const Rows& rows);

/// What is asked for.
struct Load {
  double sequences = 1;   // that decode together, on all replicas
  double context = 2048;  // tokens of each
  double requests_per_day = 0;
  double prompt = 0, answer = 0;  // tokens of a request
};

/// The part of a device's memory that is planned with: activations and the driver have the rest.
inline constexpr double usable_memory = 0.9;

/// Of the device that holds most, and of all together.
struct Plan {
  Way way;
  double weights = 0, cache = 0;  // bytes on a device
  bool fits = false;
  double most_sequences = 0;      // that fit, on all devices
  StepCost step;                  // of the slowest stage, with the sequences of one of its rounds
  double step_seconds = 0;        // between two tokens of a text, with all sequences
  double step_seconds_alone = 0;  // with one
  double tokens_per_second = 0;   // of all sequences
  // Of a load with requests:
  double request_seconds = 0;   // from its place to its end, with all places taken
  double requests_per_day = 0;  // that these devices answer
  double replicas_needed = 0;   // for what is asked
  double in_flight = 0;         // then, by Little's law
};

Plan plan_of(const PlannedModel& model, const PlanDevice& device, const Way& way, const Load& load);

/// All ways to use so many devices; replicas and stages where they are not 0.
std::vector<Way> ways_of(const ModelConfig& shape, int devices, int replicas, int stages);

}  // namespace slm::bench::plan
