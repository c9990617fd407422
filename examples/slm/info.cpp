// slm info: what a model folder holds. Reads the descriptions, not the weights.
#include <filesystem>
#include <iomanip>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <type_traits>

#include "cli.hpp"

namespace cli {

namespace {

/// The same decimal digits that the float has, not those of its neighbour in double.
double exact_digits(float value) {
  std::ostringstream digits;
  digits << std::setprecision(std::numeric_limits<float>::digits10) << value;
  return std::stod(digits.str());
}

struct Sizes {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> tensors_by_type;
};

/// Checks and counts every tensor that the model needs.
Sizes sizes_of(const slm::Checkpoint& checkpoint) {
  Sizes sizes;
  const auto count = [&](const slm::TensorName& name) {
    const slm::Tensor& tensor = checkpoint.tensor(name.name, name.shape);
    sizes.parameters += tensor.elements();
    sizes.bytes += static_cast<std::int64_t>(tensor.size_bytes);
    ++sizes.tensors_by_type[std::string{slm::name_of(tensor.dtype)}];
  };
  for (const slm::TensorName& name : slm::TensorNames(checkpoint).all(checkpoint.settings())) count(name);
  return sizes;
}

OrderedJson describe(const std::string& folder) {
  const slm::Checkpoint checkpoint(folder);
  const slm::ModelConfig& config = checkpoint.config();
  const slm::ModelSettings& settings = checkpoint.settings();
  const Sizes sizes = sizes_of(checkpoint);

  OrderedJson json;
  json["folder"] = folder;
  json["config"] = slm::Dynamic::name;
  slm::visit(slm::KnownModels{}, config, [&](auto known) { json["config"] = decltype(known)::name; });
  json["family"] = checkpoint.family().model_type;
  slm::detail::for_each_member([&](const char* field, auto member) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(config.*member)>>) {
      json[field] = slm::name_of(config.*member);
    } else {
      json[field] = config.*member;
    }
  });
  json["context"] = settings.context;
  json["rope_theta"] = exact_digits(settings.rope_theta);
  json["rope_scaling"] = slm::name_of(settings.rope_scaling.kind);
  json["window"] = settings.window;
  json["norm_epsilon"] = exact_digits(settings.norm_epsilon);
  json["tied_embeddings"] = settings.tied_embeddings;
  json["end_tokens"] = settings.end_tokens;
  json["parameters"] = sizes.parameters;
  json["weight_bytes"] = sizes.bytes;
  json["tensors"] = sizes.tensors_by_type;
  json["kv_cache_bytes_per_token"] =
      std::int64_t{2} * config.layers * config.kv_heads * config.head_dim * std::int64_t{sizeof(float)};
  json["tokenizer_vocab"] = nullptr;
  const std::filesystem::path path = folder;
  if (std::filesystem::exists(path / "tokenizer.json") || std::filesystem::exists(path / "tokenizer.model")) {
    json["tokenizer_vocab"] = slm::Tokenizer::from(path).vocab();
  }
  return json;
}

}  // namespace

void add_info(CLI::App& program) {
  auto model = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  auto known = std::make_shared<bool>(false);
  CLI::App& command = *program.add_subcommand("info", "Say what a model folder holds");
  auto& what = *command.add_option_group("what", "one of");
  what.add_option("model", *model, "folder of the model");
  auto* list = what.add_flag("--known", *known, "the models known at compile time, as a table in Markdown");
  what.require_option(1);
  command.add_flag("--json", *as_json, "print one JSON object")->excludes(list);
  command.callback([model, as_json, known] {
    if (*known) return print(known_models_table());
    const OrderedJson json = describe(*model);
    if (*as_json) return print_json(json);
    std::ostringstream table;
    for (const auto& [key, value] : json.items()) {
      table << std::left << std::setw(26) << key << (value.is_string() ? value.get<std::string>() : value.dump())
            << '\n';
    }
    print(table.str());
  });
}

}  // namespace cli
