// slm info: describes a model's files. Reads descriptions and the scales of 4-bit layers, not the weights.
#include <filesystem>
#include <iomanip>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "cli.hpp"
#include "slm/config/known_models.hpp"
#include "slm/io/declared_pooling.hpp"
#include "slm/io/ignored_tensors.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/model/estimate.hpp"
#include "slm/model/stored_type.hpp"

namespace cli {

namespace {

/// Contents of a model's files.
struct Contents {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::int64_t expert_parameters = 0;  // of experts that a router chooses
  std::map<std::string, std::int64_t> tensors_by_type;
  bool blocked = false;  // some matrices have GGUF block formats
  // of linear layers:
  std::int64_t quantized_layers = 0;
  std::set<int> bits;
  std::set<std::int64_t> groups;
  std::set<std::string_view> layouts;
  std::vector<std::string> float_layers;

  void add(const slm::Tensor* tensor) {
    if (tensor == nullptr) return;
    bytes += static_cast<std::int64_t>(tensor->size_bytes);
    blocked = blocked || slm::is_blocked(tensor->dtype);
    ++tensors_by_type[std::string{slm::name_of(tensor->dtype)}];
  }

  void add(const slm::Int4Tensor& layer) {
    for (const slm::Tensor* part : {layer.codes, layer.scales, layer.zeros}) add(part);
    add_quantized(layer, 4, layer.group);
  }

  void add(const slm::ScaledTensor& layer) {
    for (const slm::Tensor* part : {layer.codes, layer.scales, layer.zeros, layer.order}) add(part);
    add_quantized(layer, layer.bits, layer.inputs);
  }

  template <class Layer>
  void add_quantized(const Layer& layer, int width, std::int64_t group) {
    parameters += layer.out * layer.in;
    ++quantized_layers;
    bits.insert(width);
    groups.insert(group);
    layouts.insert(slm::name_of(layer.layout));
  }
};

/// Finds and checks every tensor that the model requires, like loading.
Contents contents_of(const slm::Checkpoint& checkpoint) {
  Contents contents;
  const auto add_float = [&](const slm::Tensor& tensor) {
    contents.parameters += tensor.elements();
    contents.add(&tensor);
  };
  checkpoint.names().for_each([&](slm::Role role, int, const auto& weights, const auto& biases) {
    const std::int64_t before = contents.parameters;
    for (const slm::TensorName& weight : weights) {
      if (slm::is_optional(role) && !checkpoint.has(weight.name)) continue;
      if (weight.shape.size() != 2 || role == slm::Role::choice_bias) {
        add_float(checkpoint.tensor(weight.name, weight.shape));
        continue;
      }
      const slm::StoredLinear source = slm::linear_source(checkpoint, weight);
      if (const auto* int4 = std::get_if<slm::Int4Tensor>(&source)) {
        contents.add(*int4);
      } else if (const auto* scaled = std::get_if<slm::ScaledTensor>(&source)) {
        contents.add(*scaled);
      } else {
        add_float(std::get<slm::Tensor>(source));
        if (slm::is_linear(role)) contents.float_layers.push_back(weight.module());
      }
    }
    for (const slm::TensorName& bias : biases) add_float(checkpoint.tensor(bias.name, bias.shape));
    const bool chosen = role == slm::Role::experts_up || role == slm::Role::experts_down;
    if (chosen) contents.expert_parameters += contents.parameters - before;
  });
  return contents;
}

/// Null without a mixture. active_parameters: those that one token reads, with the whole embedding table.
OrderedJson experts_of(const slm::Checkpoint& checkpoint, const Contents& contents) {
  const slm::MixtureConfig& mixture = checkpoint.config().mixture;
  if (mixture.experts == 0) return nullptr;
  const std::int64_t unused = contents.expert_parameters / mixture.experts * (mixture.experts - mixture.chosen);
  return {{"experts", mixture.experts},
          {"chosen", mixture.chosen},
          {"ffn", mixture.ffn},
          {"shared_ffn", mixture.shared_ffn},
          {"active_parameters", contents.parameters - unused}};
}

/// Null without a recurrence. state_bytes: of one layer's state.
OrderedJson mixer_of(const slm::Mixer& mixer) {
  if (mixer.kind == slm::MixerKind::none) return nullptr;
  return {{"kind", slm::name_of(mixer.kind)},
          {"taps", mixer.taps},
          {"heads", mixer.heads},
          {"head_dim", mixer.head_dim},
          {"groups", mixer.groups},
          {"state", mixer.state},
          {"state_bytes", mixer.state_floats() * static_cast<std::int64_t>(sizeof(float))}};
}

OrderedJson layers_of(const slm::LayerSet& set, int layers) {
  OrderedJson list = OrderedJson::array();
  for (int layer = 0; layer < layers; ++layer) {
    if (set.has(layer)) list.push_back(layer);
  }
  return list;
}

/// Null if all layers have one shape.
OrderedJson shapes_of(const slm::LayerShapes& shapes, int layers) {
  if (shapes == slm::LayerShapes{}) return nullptr;
  return {{"wide_heads", layers_of(shapes.wide_heads, layers)},
          {"kv_heads", shapes.kv_heads},
          {"head_dim", shapes.head_dim},
          {"keys_as_values", layers_of(shapes.keys_as_values, layers)},
          {"borrowing", layers_of(shapes.borrowing, layers)},
          {"wide_mlps", layers_of(shapes.wide_mlps, layers)},
          {"ffn", shapes.ffn},
          {"inputs", shapes.inputs},
          {"input_rows", shapes.input_rows}};
}

/// Null with one residual stream.
OrderedJson streams_of(const slm::ResidualStreams& streams) {
  if (streams == slm::ResidualStreams{}) return nullptr;
  return {{"count", streams.count}, {"low_rank", streams.low_rank}, {"scaled", streams.scaled}};
}

/// Null without latent attention.
OrderedJson latent_of(const slm::LatentAttention& latent) {
  if (latent == slm::LatentAttention{}) return nullptr;
  return {{"rank", latent.rank},
          {"query_rank", latent.query_rank},
          {"unrotated", latent.unrotated},
          {"value", latent.value}};
}

/// The stored tensors that the model does not read, by prefix.
OrderedJson ignored_of(const slm::Checkpoint& checkpoint) {
  OrderedJson groups = OrderedJson::object();
  for (const auto& [prefix, ignored] : slm::ignored_tensors(checkpoint))
    groups[prefix] = {{"tensors", ignored.count}, {"bytes", ignored.bytes}};
  return groups;
}

/// Null if nothing is quantized.
OrderedJson quantization_of(const Contents& contents) {
  if (contents.quantized_layers == 0) return nullptr;
  const OrderedJson bits = contents.bits.size() == 1 ? OrderedJson(*contents.bits.begin()) : OrderedJson(contents.bits);
  return {{"bits", bits},
          {"groups", contents.groups},
          {"layouts", contents.layouts},
          {"layers", contents.quantized_layers},
          {"float_layers", contents.float_layers}};
}

/// The in-memory format of each matrix type of a GGUF file; null for folders, which are used as stored.
OrderedJson formats_of(const slm::Checkpoint& checkpoint) {
  if (!checkpoint.gguf()) return nullptr;
  const bool blocks = slm::detail::has_blocks(checkpoint);
  const auto held = slm::detail::stored_type(checkpoint);
  const auto name_of_floats = [&](slm::DType type) -> std::string {
    if (blocks) return std::string{slm::name_of(type)};
    return held == slm::WeightType::f16 ? "F16" : held == slm::WeightType::bf16 ? "BF16" : "F32";
  };
  OrderedJson formats = OrderedJson::object();
  for (const auto& [unused, tensor] : checkpoint.tensors()) {
    if (tensor->shape.size() != 2) continue;
    const slm::DType type = tensor->dtype;
    formats[std::string{slm::name_of(type)}] =
        slm::is_blocked(type) ? slm::text(slm::narrow_code_tiles_of(type).bits, "-bit codes") : name_of_floats(type);
  }
  return formats;
}

/// Bytes of memory on the CPU. With a draft model, of both. context 0: sequences fill the model's context.
OrderedJson memory_of(const slm::Checkpoint& checkpoint, slm::EstimateOptions options) {
  const slm::MemoryEstimate all = slm::estimate(checkpoint, options);
  OrderedJson memory{{"weights", all.weights},
                     {"weights_in_file", all.mapped},
                     {"sequences", options.sequences},
                     {"positions", options.context == 0 ? checkpoint.settings().context : options.context}};
  if (!options.draft.empty()) memory["draft"] = options.draft.string();
  for (const slm::KvFormat format : slm::kv_formats) {
    options.kv_format = format;
    memory["kv_cache"][std::string{slm::name_of(format)}] = slm::estimate(checkpoint, options).cache;
  }
  memory["scratch"] = all.scratch;
  memory["total"] = all.total();
  return memory;
}

OrderedJson describe(const std::string& folder, const slm::EstimateOptions& estimated) {
  const std::filesystem::path path = slm::path_of(folder);
  const slm::Checkpoint checkpoint(path);
  const slm::ModelConfig& config = checkpoint.config();
  const slm::ModelSettings& settings = checkpoint.settings();
  const Contents contents = contents_of(checkpoint);

  OrderedJson json;
  json["folder"] = folder;
  json["config"] = slm::Dynamic::name;
  slm::visit(slm::KnownModels{}, config, [&](auto known) { json["config"] = decltype(known)::name; });
  json["family"] = checkpoint.family().model_type;
  slm::detail::for_each_member([&](const char* field, auto member) {
    using Field = std::remove_cvref_t<decltype(config.*member)>;
    if constexpr (std::is_enum_v<Field>) {
      json[field] = slm::name_of(config.*member);
    } else if constexpr (std::is_same_v<Field, slm::MixtureConfig>) {
      json[field] = experts_of(checkpoint, contents);
    } else if constexpr (std::is_same_v<Field, slm::Mixer>) {
      json[field] = mixer_of(config.*member);
    } else if constexpr (std::is_same_v<Field, slm::LayerSet>) {
      json[field] = layers_of(config.*member, config.layers);
    } else if constexpr (std::is_same_v<Field, slm::LayerShapes>) {
      json[field] = shapes_of(config.*member, config.layers);
    } else if constexpr (std::is_same_v<Field, slm::LatentAttention>) {
      json[field] = latent_of(config.*member);
    } else if constexpr (std::is_same_v<Field, slm::ResidualStreams>) {
      json[field] = streams_of(config.*member);
    } else {
      json[field] = config.*member;
    }
  });
  json["traits"] = traits_of(checkpoint);
  json["context"] = settings.context;
  json["rope_theta"] = exact_digits(settings.rope_theta);
  json["rope_scaling"] = slm::name_of(settings.rope_scaling.kind);
  json["window"] = settings.window;
  json["norm_epsilon"] = exact_digits(settings.norm_epsilon);
  json["tied_embeddings"] = settings.tied_embeddings;
  json["end_tokens"] = settings.end_tokens;
  json["end_tokens_from"] = OrderedJson::object();
  for (std::size_t i = 0; i < settings.end_tokens.size(); ++i) {
    json["end_tokens_from"][std::to_string(settings.end_tokens[i])] = checkpoint.end_sources().at(i);
  }
  json["parameters"] = contents.parameters;
  json["weight_bytes"] = contents.bytes;
  json["tensors"] = contents.tensors_by_type;
  json["ignored_tensors"] = ignored_of(checkpoint);
  json["held_as"] = formats_of(checkpoint);
  json["quantization"] = quantization_of(contents);
  if (contents.blocked) json["quantization"] = checkpoint.gguf() ? "GGUF blocks" : "MXFP4 blocks";
  for (const slm::KvFormat format : slm::kv_formats) {
    std::int64_t bytes = 0;
    for (int layer = 0; layer < config.layers; ++layer) {
      if (slm::kv_layer_of(config, settings, layer) != layer) continue;
      const int rows = config.is_latent() ? 1 : 2 * config.kv_heads_of(layer);
      bytes += rows * slm::kv_row_bytes(format, config.head_dim_of(layer));
    }
    json["kv_cache_bytes_per_token"][std::string{slm::name_of(format)}] = bytes;
  }
  json["memory"] = memory_of(checkpoint, estimated);
  json["tokenizer_vocab"] = nullptr;
  if (checkpoint.gguf() ? checkpoint.gguf()->fields().has("tokenizer.ggml.tokens")
                        : slm::file_exists(path / "tokenizer.json") || slm::file_exists(path / "tokenizer.model")) {
    json["tokenizer_vocab"] = slm::Tokenizer::from(path).vocab();
  }
  json["pooling"] = nullptr;
  if (const auto declared = slm::declared_pooling(path)) {
    json["pooling"] = slm::text(declared->pooling, declared->normalize ? ", normalized" : "",
                                declared->more.empty() ? "" : ", ", declared->more);
  }
  json["notes"] = checkpoint.notes();
  return json;
}

/// A value as text: lists as words, null as none.
std::string words_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (!value.is_structured()) return value.dump();
  std::string words;
  for (const auto& [key, entry] : value.items()) {
    words += (words.empty() ? "" : ", ") + (value.is_object() ? key + ": " : "") + words_of(entry);
  }
  return words.empty() ? "none" : words;
}

std::string info_table(const OrderedJson& json) {
  std::ostringstream table;
  const auto row = [&](std::string_view name, const std::string& words) {
    table << std::left << std::setw(26) << name << words << '\n';
  };
  for (const auto& [key, value] : json.items()) {
    if (key != "quantization" || !value.is_object()) {
      row(key, words_of(value));
      continue;
    }
    row(key, slm::text("4 bits, ", words_of(value["layouts"]), ", groups of ", words_of(value["groups"]), ", ",
                       words_of(value["layers"]), " layers"));
    row("float_layers", words_of(value["float_layers"]));
  }
  return table.str();
}

}  // namespace

void add_info(CLI::App& program) {
  auto model = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  auto known = std::make_shared<bool>(false);
  auto draft_path = std::make_shared<std::string>();
  auto estimated = std::make_shared<slm::EstimateOptions>();
  CLI::App& command = *program.add_subcommand("info", "Describe a model's files");
  auto& what = *command.add_option_group("what", "one of");
  what.add_option("model", *model, "model (folder or GGUF file)");
  auto* list = what.add_flag("--known", *known, "list the models known at compile time, as a Markdown table");
  what.require_option(1);
  command.add_option("--sequences", estimated->sequences, "sequences whose KV cache \"memory\" includes")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->excludes(list);
  command.add_option("--context", estimated->context, "tokens of each of them; default: the whole context")
      ->check(CLI::Range(1, 1 << 30))
      ->excludes(list);
  auto* draft =
      command.add_option("--draft", *draft_path, "a draft model that \"memory\" includes (folder or GGUF file)")
          ->excludes(list);
  command
      .add_option("--draft-head", estimated->draft_head_tokens,
                  "see slm generate --draft-head; 0: the draft's whole head")
      ->needs(draft)
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command.add_option("--draft-bits", estimated->draft_bits, "see slm generate --draft-bits; 0: as stored")
      ->needs(draft)
      ->check(CLI::IsMember({0, 4, 8}))
      ->capture_default_str();
  command.add_flag("--json", *as_json, "print one JSON object")->excludes(list);
  command.callback([model, as_json, known, draft_path, estimated] {
    if (*known) return print(known_models_table());
    estimated->draft = *draft_path;
    const OrderedJson json = describe(*model, *estimated);
    if (*as_json) return print_json(json);
    print(info_table(json));
  });
}

}  // namespace cli
