#include "bench/command/plan/cost.hpp"

#include <cmath>
#include <cstddef>

#include "slm/backend/head_cut.hpp"
#include "slm/backend/row_cut.hpp"

namespace slm::bench::plan {

namespace {

struct Matrix {
  std::int64_t out, in;
};

std::array<Matrix, 4> layer_matrices(const ModelConfig& shape) {
  const std::int64_t queries = detail::query_width(shape), keys = detail::key_width(shape);
  return {Matrix{queries + 2 * keys, shape.hidden},
          {shape.hidden, queries},
          {(shape.gated ? 2 : 1) * std::int64_t{shape.ffn}, shape.hidden},
          {shape.hidden, shape.ffn}};
}

/// The bytes of a rank's rows of a matrix.
double share_bytes(const MatrixFormat& format, Matrix matrix, int ranks, int rank) {
  const RowCut cut(matrix.out, ranks);
  return static_cast<double>(format.bytes(cut.parts * cut.count(rank), matrix.in));
}

HeadCut head_cut(const ModelConfig& shape, int ranks) {
  return HeadCut({.query = shape.heads, .kv = shape.kv_heads, .dim = shape.head_dim}, shape.qk_norm, ranks);
}

/// The heads of the rank with the most heads.
Heads most_heads(const ModelConfig& shape, int ranks) {
  const HeadCut cut = head_cut(shape, ranks);
  Heads most;
  for (int rank = 0; rank < ranks; ++rank) {
    const Heads heads = cut.of(rank);
    most.query = std::max(most.query, heads.query);
    most.kv = std::max(most.kv, heads.kv);
  }
  return most;
}

/// The bytes of the query, key and value weights.
double qkv_bytes(const PlannedModel& model, const Layout& layout, int rank) {
  const Matrix qkv = layer_matrices(model.shape)[0];
  const HeadCut cut = head_cut(model.shape, layout.tensor);
  if (cut.whole) return share_bytes(model.layers[0], qkv, layout.tensor, rank);
  std::int64_t rows = 0;
  for (const RowRange& range : cut.rows_of(rank)) rows += range.count();
  return static_cast<double>(model.layers[0].bytes(rows, qkv.in));
}

double layer_bytes(const PlannedModel& model, const Layout& layout, int rank) {
  const std::array<Matrix, 4> matrices = layer_matrices(model.shape);
  double bytes = qkv_bytes(model, layout, rank);
  for (std::size_t i = 1; i < matrices.size(); ++i)
    bytes += share_bytes(model.layers[i], matrices[i], layout.tensor, rank);
  return bytes;
}

double table_bytes(const PlannedModel& model, const Layout& layout, int rank) {
  return share_bytes(model.table, {model.shape.vocab, model.shape.embedding_dim()}, layout.tensor, rank);
}

/// The projections between a narrow embedding and the layers, in the embedding's format.
double project_in_bytes(const PlannedModel& model, const Layout& layout, int rank) {
  const std::int64_t narrow = model.shape.embedding;
  return narrow == 0 ? 0 : share_bytes(model.table, {model.shape.hidden, narrow}, layout.tensor, rank);
}
double project_out_bytes(const PlannedModel& model, const Layout& layout, int rank) {
  const std::int64_t narrow = model.shape.embedding;
  return narrow == 0 ? 0 : share_bytes(model.table, {narrow, model.shape.hidden}, layout.tensor, rank);
}

bool first(int stage) { return stage == 0; }
bool last(const Layout& layout, int stage) { return stage + 1 == layout.stages; }

double ceiling(double value, double divisor) { return std::ceil(value / divisor); }

}  // namespace

std::int64_t MatrixFormat::bytes(std::int64_t out, std::int64_t in) const {
  if (!codes) return out * in * element;
  CodeTiles tiles = *codes;
  tiles.out = out;
  tiles.in = in;
  return tiles.total_bytes();
}

const char* StepCost::bound() const {
  const double most = std::max({memory_seconds, arithmetic_seconds, launch_seconds, message_seconds});
  return most == memory_seconds       ? "memory"
         : most == arithmetic_seconds ? "arithmetic"
         : most == launch_seconds     ? "launches"
                                      : "messages";
}

int stage_layers(const ModelConfig& shape, int stages, int stage) {
  return shape.layers / stages + (stage < shape.layers % stages ? 1 : 0);
}

double step_weight_bytes(const PlannedModel& model, const Layout& layout, int rank, int stage) {
  double bytes = stage_layers(model.shape, layout.stages, stage) * layer_bytes(model, layout, rank);
  if (first(stage))
    bytes += std::floor(table_bytes(model, layout, rank) / model.shape.vocab) + project_in_bytes(model, layout, rank);
  if (last(layout, stage)) bytes += table_bytes(model, layout, rank) + project_out_bytes(model, layout, rank);
  return bytes;
}

double held_weight_bytes(const PlannedModel& model, const Layout& layout, int rank, int stage) {
  const int layers = stage_layers(model.shape, layout.stages, stage);
  double bytes = layers * (layer_bytes(model, layout, rank) +
                           static_cast<double>(block_vector_count(model.shape)) * sizeof(float));
  const bool one_table = model.tied && layout.stages == 1;
  if (first(stage)) bytes += table_bytes(model, layout, rank) + project_in_bytes(model, layout, rank);
  if (last(layout, stage))
    bytes += (one_table ? 0 : table_bytes(model, layout, rank)) + project_out_bytes(model, layout, rank);
  return bytes;
}

double gathered_bytes(const ModelConfig& shape, int tensor) {
  const double queries = static_cast<double>(detail::query_width(shape));
  const double keys = static_cast<double>(detail::key_width(shape));
  const double attention = queries + (head_cut(shape, tensor).whole ? 2 * keys : 0);
  return sizeof(float) * (attention + 2.0 * shape.hidden + shape.ffn);
}

double cache_bytes(const PlannedModel& model, const Layout& layout, int layers) {
  return 2.0 * layers * most_heads(model.shape, layout.tensor).kv *
         static_cast<double>(kv_row_bytes(model.cache, model.shape.head_dim));
}

StepCost step_cost(const PlannedModel& model, const PlanDevice& device, const Layout& layout, int stage,
                   const Rows& rows) {
  const ModelConfig& shape = model.shape;
  const int layers = stage_layers(shape, layout.stages, stage);
  const double tensor = layout.tensor;
  StepCost cost;
  for (int rank = 0; rank < layout.tensor; ++rank)
    cost.weight_bytes = std::max(cost.weight_bytes, step_weight_bytes(model, layout, rank, stage));
  cost.cache_bytes = cache_bytes(model, layout, layers) * rows.sequences * rows.context;

  const double table = static_cast<double>(shape.vocab) * shape.embedding_dim();
  const double products = rows.rows * layers * static_cast<double>(block_linear_count(shape)) +
                          (last(layout, stage) ? rows.outputs * table : 0);
  const double heads = most_heads(shape, layout.tensor).query;
  const double attention = 2.0 * rows.rows * rows.context * layers * heads * shape.head_dim;
  cost.operations = 2 * (products / tensor + attention);

  if (layout.tensor > 1) {  // a gather receives everything except the rank's own part; rank 0 broadcasts every step
    double gathered = layers * rows.rows * gathered_bytes(shape, layout.tensor);
    const int projections = shape.embedding != 0 ? 2 : 1;  // gathers of the tables, beside the layers' four
    if (first(stage)) gathered += sizeof(float) * rows.rows * (shape.embedding + std::int64_t{shape.hidden});
    if (last(layout, stage)) gathered += sizeof(float) * rows.outputs * (shape.embedding + std::int64_t{shape.vocab});
    cost.traffic = gathered * (tensor - 1) / tensor;
    cost.messages = 4.0 * layers + projections * (first(stage) + last(layout, stage)) + 1;
  }
  if (layout.stages > 1) {  // rows from the previous stage, tokens from the last
    cost.traffic += sizeof(float) * rows.rows * (first(stage) ? 1 : shape.hidden);
    cost.messages += 1;
  }

  cost.memory_seconds = (cost.weight_bytes + cost.cache_bytes) / (device.bandwidth * device.share);
  cost.arithmetic_seconds = cost.operations / (device.arithmetic * device.share);
  cost.launch_seconds = (5.0 * layers + first(stage) + last(layout, stage)) * device.launch;
  cost.message_seconds = cost.messages * device.latency + cost.traffic / device.link;
  return cost;
}

namespace {

/// All stages in sequence, and the slowest stage.
struct Passage {
  double all = 0, slowest = 0;
  StepCost of_slowest;
};

Passage passage(const PlannedModel& model, const PlanDevice& device, const Layout& layout, const Rows& rows) {
  Passage found;
  for (int stage = 0; stage < layout.stages; ++stage) {
    const StepCost cost = step_cost(model, device, layout, stage, rows);
    found.all += cost.seconds();
    if (cost.seconds() <= found.slowest) continue;
    found.slowest = cost.seconds();
    found.of_slowest = cost;
  }
  return found;
}

void plan_memory(Plan& plan, const PlannedModel& model, const PlanDevice& device, const Load& load) {
  const Layout& layout = plan.layout;
  const double places = ceiling(load.sequences, layout.replicas), usable = usable_memory * device.memory;
  double most = -1;  // sequences per replica, limited by the stage that holds fewest
  for (int stage = 0; stage < layout.stages; ++stage) {
    const double sequence = cache_bytes(model, layout, stage_layers(model.shape, layout.stages, stage)) * load.context;
    for (int rank = 0; rank < layout.tensor; ++rank) {
      const double weights = held_weight_bytes(model, layout, rank, stage);
      const double room = std::max(0.0, std::floor((usable - weights) / sequence));
      if (most < 0 || room < most) most = room;
      if (weights + places * sequence <= plan.weights + plan.cache) continue;
      plan.weights = weights;
      plan.cache = places * sequence;
    }
  }
  plan.most_sequences = most * layout.replicas;
  plan.fits = places <= most;
}

}  // namespace

Plan plan_of(const PlannedModel& model, const PlanDevice& device, const Layout& layout, const Load& load) {
  Plan plan;
  plan.layout = layout;
  plan_memory(plan, model, device, load);
  // The sequences of a replica pass its stages in rounds, one round per stage.
  const double places = ceiling(load.sequences, layout.replicas);
  const double rounds = std::min<double>(layout.stages, places);
  const double rows = ceiling(places, rounds);
  const Passage step = passage(model, device, layout, {rows, rows, rows, load.context});
  plan.step = step.of_slowest;
  plan.step_seconds = std::max(step.all, rounds * step.slowest);
  plan.step_seconds_alone = passage(model, device, layout, {1, 1, 1, load.context}).all;
  plan.tokens_per_second = load.sequences / plan.step_seconds;
  if (load.requests_per_day <= 0) return plan;

  const double piece = std::clamp(load.prompt, 1.0, 512.0);
  const double prompt = passage(model, device, layout, {piece, 1, 1, load.prompt / 2}).slowest * load.prompt / piece;
  const double replica_seconds =
      prompt + load.answer * plan.step_seconds / places;  // share of a replica's time that one request uses
  plan.request_seconds = places * replica_seconds;
  plan.requests_per_day = layout.replicas * 86400 / replica_seconds;
  plan.replicas_needed = std::ceil(load.requests_per_day / 86400 * replica_seconds);
  plan.in_flight = load.requests_per_day / 86400 * plan.request_seconds;
  return plan;
}

std::vector<Layout> layouts_of(const ModelConfig& shape, int devices, int replicas, int stages) {
  std::vector<Layout> layouts;
  for (int r = devices; r >= 1; --r) {
    if (devices % r != 0 || (replicas != 0 && r != replicas)) continue;
    const int group = devices / r;
    for (int p = 1; p <= std::min(group, shape.layers); ++p) {
      if (group % p != 0 || (stages != 0 && p != stages)) continue;
      layouts.push_back({.replicas = r, .tensor = group / p, .stages = p});
    }
  }
  return layouts;
}

}  // namespace slm::bench::plan
