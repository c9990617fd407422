// The models that slm serve loads when requests name them.
#if SLM_HAS_SERVER

#include "serve_models.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "slm/core/free_memory.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/path_name.hpp"
#include "slm/model/estimate.hpp"
#include "tools/cli/ranks.hpp"

namespace cli {

namespace {

slm::Error bad_list(const std::string& found) {
  return {"serve.model-list", found, "Write --model NAME=PATH or NAME=PATH,draft=PATH, with a different name for each"};
}

/// NAME=PATH or NAME=PATH,draft=PATH.
serve::ModelSource parse_source(const std::string& named) {
  constexpr std::string_view draft = ",draft=";
  const std::size_t sign = std::min(named.find('='), named.size());
  serve::ModelSource source{.name = named.substr(0, sign), .path = named.substr(std::min(sign + 1, named.size()))};
  if (const std::size_t at = source.path.rfind(draft); at != std::string::npos) {
    source.draft = source.path.substr(at + draft.size());
    source.path.resize(at);
    if (source.draft.empty()) source.path.clear();
  }
  if (source.name.empty() || source.path.empty()) {
    throw bad_list(slm::text("--model ", slm::quote(named), ": expected a name and a path"));
  }
  return source;
}

/// Whether a folder's entry is a model: a folder with config.json, or a GGUF file, of several parts the first one.
bool is_model(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return std::filesystem::exists(path / "config.json", ignored);
  const std::string name = path.filename().string();
  const bool is_later_part = name.find("-of-") != name.npos && name.find("-00001-of-") == name.npos;
  return name.ends_with(".gguf") && !is_later_part;
}

std::vector<serve::ModelSource> sources_in(const std::string& folder) {
  std::vector<serve::ModelSource> sources;
  std::error_code error;
  std::filesystem::directory_iterator entries(slm::path_of(folder), error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::filesystem::path& path = entries->path();
    if (is_model(path)) sources.push_back({.name = slm::detail::name_of_model(path), .path = path.string()});
  }
  if (error) throw bad_list(slm::text("the folder of models '", folder, "' cannot be read: ", error.message()));
  if (sources.empty()) {
    throw bad_list(
        slm::text("the folder '", folder, "' has no model: expected folders with config.json or GGUF files"));
  }
  std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return sources;
}

}  // namespace

std::string fingerprint_of(const ModelOptions& models) {
  if (models.backend != "cpu") return models.backend;
  const slm::backend::Isa isa = slm::backend::resolve(models.cpu.isa);
  std::string name = slm::text("cpu-", slm::backend::name_of(isa));
  if (models.cpu.activations == slm::backend::Int4Activations::bits8) name += "-a8";
  if (models.cpu.dense_activations != slm::backend::DenseActivations::exact && slm::backend::has_bf16_products(isa)) {
    name += slm::text('-', slm::backend::name_of(models.cpu.dense_activations));
  }
  return name;
}

OrderedJson json_of(const slm::SuggestedSampling& suggested) {
  OrderedJson json = OrderedJson::object();
  const auto add = [&json](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add("temperature", suggested.temperature);
  add("top_k", suggested.top_k);
  add("top_p", suggested.top_p);
  add("min_p", suggested.min_p);
  add("repetition_penalty", suggested.repetition_penalty);
  return json;
}

std::vector<serve::ModelSource> model_sources(const ModelsOptions& options) {
  std::vector<serve::ModelSource> sources;
  for (const std::string& named : options.named) sources.push_back(parse_source(named));
  if (!options.folder.empty()) sources = sources_in(options.folder);
  std::set<std::string> names;
  for (const serve::ModelSource& source : sources) {
    if (!names.insert(source.name).second) {
      throw bad_list(slm::text("two models have the name ", slm::quote(source.name)));
    }
  }
  return sources;
}

serve::ModelOutline outline_of(const serve::ModelSource& source, const ModelOptions& models,
                               const slm::EngineOptions& engine) {
  const slm::Checkpoint target(slm::path_of(source.path));
  slm::EstimateOptions options{.context = models.context,
                               .sequences = static_cast<int>(std::min<std::size_t>(engine.max_running, 1 << 20)),
                               .kv_format = models.cache_format};
  const slm::MemoryEstimate alone = slm::estimate(target, options);
  options.draft = slm::path_of(source.draft);
  const slm::MemoryEstimate both = slm::estimate(target, options);
  // The target's cache has a limit, and a draft's grows with it.
  const double share = static_cast<double>(both.cache) / static_cast<double>(std::max<std::uint64_t>(alone.cache, 1));
  const auto cache = static_cast<std::uint64_t>(static_cast<double>(engine.cache_memory) * share);
  return {.bytes = both.weights + both.scratch + cache,
          .context = models.context == 0 ? target.settings().context : models.context};
}

serve::ModelList make_model_list(const ModelsOptions& options, const ModelOptions& models,
                                 const slm::EngineOptions& engine) {
  if (rank_count() > 1) {
    throw slm::Error("ranks.models", "expected one model on several ranks, found a list of models",
                     "Name the model with --target, or start slm without a launcher");
  }
  if (engine.cache_memory == 0) {
    throw slm::Error("serve.model-memory", "expected a limit of each model's KV cache, found --cache-memory 0",
                     "Set --cache-memory to the bytes of one model's KV cache");
  }
  serve::ModelList list{.sources = model_sources(options),
                        .budget = options.memory != 0 ? options.memory : slm::detail::usual_budget(1)};
  if (!options.folder.empty()) return list;  // its faulty models are listed as failed
  for (const serve::ModelSource& source : list.sources) {
    serve::check_budget(source.name, outline_of(source, models, engine).bytes, list.budget);
  }
  return list;
}

}  // namespace cli

#endif
