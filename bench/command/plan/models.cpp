#include "bench/command/plan/models.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>
#include <variant>

#include "slm/config/known_models.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/io/mapped_file.hpp"

namespace slm::bench::plan {

namespace {

struct NamedShape {
  std::string name;
  ModelConfig shape;
  bool tied;
};

template <class... Models>
std::vector<NamedShape> shapes_of(Registry<Models...>) {
  return {{std::string(Models::name), Models::value, table_sizes_of<Models>().tied}...};
}

std::vector<NamedShape> named_shapes() {
  std::vector<NamedShape> shapes = shapes_of(KnownModels{});
  // No published model: 2.0e11 parameters in the proportions of the large Llama models.
  shapes.push_back(
      {"200B",
       {.layers = 128, .hidden = 12288, .ffn = 32768, .heads = 96, .kv_heads = 8, .head_dim = 128, .vocab = 128256},
       false});
  return shapes;
}

MatrixFormat floats(DType type) { return {.element = static_cast<int>(bytes_of(type))}; }

/// Sets the format of a model without a file.
void set_format(PlannedModel& model, const std::string& format) {
  model.format = format;
  if (format == "q8_0") {
    model.table = {.codes = code_tiles_of(DType::q8_0)};
    model.layers.fill(model.table);
  } else if (format == "int4") {
    const int group = int4_group(model.shape);
    if (group == 0) {
      throw Error("bench.no-int4", text("no group of 4-bit weights divides the rows of ", model.name),
                  "Use another --format");
    }
    model.layers.fill({.codes = CodeTiles{.block = group}});
    model.table = floats(DType::f16);
  } else {
    model.table = floats(format == "f32" ? DType::f32 : DType::f16);
    model.layers.fill(model.table);
  }
}

MatrixFormat format_of(const StoredLinear& source, bool on_processor) {
  if (std::holds_alternative<ScaledTensor>(source)) return floats(DType::f32);
  if (const auto* int4 = std::get_if<Int4Tensor>(&source))
    return {.codes = CodeTiles{.block = int4_block(int4->group, int4->in)}};
  const DType type = std::get<Tensor>(source).dtype;
  if (!is_blocked(type)) return floats(type);
  return {.codes = on_processor ? narrow_code_tiles_of(type) : code_tiles_of(type)};
}

std::string name_of(const StoredLinear& source) {
  if (std::holds_alternative<Int4Tensor>(source)) return "int4";
  if (const auto* scaled = std::get_if<ScaledTensor>(&source)) return std::string(slm::name_of(scaled->layout));
  return std::string(slm::name_of(std::get<Tensor>(source).dtype));
}

/// For each kind of matrix, the format of most layers. The model's format is that of most weights.
void set_stored_format(PlannedModel& model, const Checkpoint& checkpoint, bool on_processor) {
  constexpr std::array kinds = {Role::qkv, Role::attention_out, Role::gate_up, Role::down};
  std::map<std::string, std::int64_t> weights_of;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    std::map<std::string, std::int64_t> count_of;
    for (int layer = 0; layer < model.shape.layers; ++layer) {
      for (const TensorName& weight : checkpoint.names().weights(kinds[kind], layer)) {
        const StoredLinear source = linear_source(checkpoint, weight);
        const std::int64_t count = weight.shape[0] * weight.shape[1];
        std::int64_t& with_this = count_of[name_of(source)] += count;
        weights_of[name_of(source)] += count;
        const auto more = [&](const auto& other) { return other.second > with_this; };
        if (std::none_of(count_of.begin(), count_of.end(), more)) model.layers[kind] = format_of(source, on_processor);
      }
    }
  }
  const auto fewer = [](const auto& one, const auto& other) { return one.second < other.second; };
  model.format = std::max_element(weights_of.begin(), weights_of.end(), fewer)->first;
  const TensorName table = checkpoint.names().weights(Role::embedding).front();
  model.table = format_of(checkpoint.tensor(table.name, table.shape), on_processor);
}

/// Throws bench.plan-layers unless all layers are attention and one MLP of the same shape, which the plan counts.
void check_layers(const ModelConfig& shape, const std::string& model) {
  if (shape.is_plain() && !shape.is_latent() && shape.mixture.experts == 0) return;
  throw Error("bench.plan-layers",
              text(quote(model), " has ",
                   shape.is_hybrid()            ? "recurrent layers"
                   : shape.mixture.experts != 0 ? "a mixture of experts"
                   : shape.is_latent()          ? "latent attention"
                                                : "layers of different shapes",
                   ", which a plan does not count"),
              "Use a dense model, or measure with slm bench decode");
}

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& named : named_shapes()) names.push_back(named.name);
  return names;
}

PlannedModel planned_model(const std::string& model, const std::string& format, bool on_processor) {
  const auto with_format = [&](PlannedModel planned) {
    set_format(planned, format.empty() ? "bf16" : format);
    return planned;
  };
  for (const NamedShape& named : named_shapes()) {
    if (named.name == model)
      return with_format({.name = named.name, .format = {}, .shape = named.shape, .tied = named.tied});
  }
  const std::filesystem::path path = model;
  if (!file_exists(path)) {
    std::string names;
    for (const std::string& name : shape_names()) names += (names.empty() ? "" : ", ") + name;
    throw Error("bench.unknown-shape", text("expected a named shape or an existing file, found ", quote(model)),
                text("Use a folder, a GGUF file, a config.json, or one of: ", names));
  }
  if (path.extension() == ".json") {
    const ModelDescription read = read_config_json(read_json_object(path), model);
    check_layers(read.config, model);
    return with_format({.name = model, .format = {}, .shape = read.config, .tied = read.settings.tied_embeddings});
  }
  const Checkpoint checkpoint(path);
  check_layers(checkpoint.config(), model);
  PlannedModel planned{
      .name = model, .format = {}, .shape = checkpoint.config(), .tied = checkpoint.settings().tied_embeddings};
  if (!format.empty()) return with_format(std::move(planned));
  set_stored_format(planned, checkpoint, on_processor);
  return planned;
}

}  // namespace slm::bench::plan
