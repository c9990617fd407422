// The functions of io/peft.hpp. The tensors of a PEFT folder determine the adapted modules, the config their scale.
// Other kinds of training are refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/checksum.hpp"
#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/finite.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/io/adapted_product.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/name_pattern.hpp"
#include "slm/io/path_name.hpp"
#include "slm/io/peft.hpp"
#include "slm/io/peft_config.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/lm/adapter.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

class PeftFolder {
 public:
  PeftFolder(const std::filesystem::path& folder, const Checkpoint& checkpoint)
      : folder_(folder), checkpoint_(checkpoint), table_(table_of(checkpoint.family())), config_(folder) {
    if (checkpoint.gguf() && checkpoint.family().model_type == "falcon_h1")
      throw config_.unsupported("a GGUF file of Falcon-H1 as its base",
                                "the file's weights contain the model's factors");
    name_modules();
  }

  Adapter read(const HostMemory& allocate) {
    const Safetensors file(weights_file());
    for (const auto& [name, tensor] : file.tensors) sort_in(name, tensor);
    if (pairs_.empty()) throw missing("no LoRA weights");
    Order order;
    for (const auto& named : pairs_) {
      check(named.first, named.second);
      for (const AdaptedPart& part : named.second.place->parts) {
        const bool fresh = order.emplace(std::pair(part.product, part.first), Change{&named, &part}).second;
        if (!fresh) throw unknown(named.first);  // the same module under two names
      }
    }
    Adapter adapter = copy(order, allocate);
    file.file.check_unchanged();
    return adapter;
  }

 private:
  struct Module {
    std::int64_t out, in;
    std::vector<AdaptedPart> parts;

    int product() const { return parts.front().product; }
  };
  struct Pair {
    const Module* place = nullptr;
    const Tensor* a = nullptr;
    const Tensor* b = nullptr;
  };

  using Pairs = std::map<std::string, Pair, std::less<>>;  // by module
  struct Change {
    const Pairs::value_type* named;
    const AdaptedPart* part;

    std::size_t down_bytes() const { return named->second.a->size_bytes; }
    std::size_t up_bytes() const {
      const Tensor& b = *named->second.b;
      return b.size_bytes / static_cast<std::size_t>(b.shape[0]) * static_cast<std::size_t>(part->out);
    }
  };
  using Order = std::map<std::pair<int, std::int64_t>, Change>;  // by product and first output

  std::string name() const { return quote(config_.name()); }

  /// Tensor names of the model's Hugging Face class, which a GGUF file does not use.
  static const TensorTable& table_of(const Family& family) {
    const auto found = std::find_if(std::begin(known_families), std::end(known_families),
                                    [&](const Family* known) { return known->model_type == family.model_type; });
    return found == std::end(known_families) ? family.names : (*found)->names;
  }

  void name_modules() {
    ModelSettings settings = checkpoint_.settings();
    settings.tied_embeddings = false;  // a tied head is a module too
    const TensorNames names(checkpoint_.config(), settings, table_, NamePrefixes{});
    for_each_adapted(names, checkpoint_.config(),
                     [&](const TensorName& weight, std::int64_t in, std::int64_t out, std::vector<AdaptedPart> parts) {
                       modules_.emplace(weight.module(), Module{out, in, std::move(parts)});
                     });
  }

  std::filesystem::path weights_file() const {
    const auto file = folder_ / "adapter_model.safetensors";
    if (file_exists(file)) return file;
    if (file_exists(folder_ / "adapter_model.bin")) {
      throw Error("adapter.pickle",
                  text(name(), " has its weights in adapter_model.bin, a pickle, which may run any program"),
                  "Save it again with save_pretrained(..., safe_serialization=True)");
    }
    throw missing("no adapter_model.safetensors");
  }

  Error missing(const std::string& what) const {
    return Error("adapter.missing-tensor", text(name(), " has ", what), "Copy or train the adapter again");
  }

  /// Assigns a tensor to its module, or refuses it.
  void sort_in(std::string_view full, const Tensor& tensor) {
    constexpr std::string_view prefix = "base_model.model.";
    std::string_view module = full;
    const bool prefixed = module.starts_with(prefix);
    if (prefixed) module.remove_prefix(prefix.size());
    const auto take = [&](std::string_view suffix) {
      if (!prefixed || !module.ends_with(suffix)) return false;
      module.remove_suffix(suffix.size());
      return true;
    };
    if (take(".lora_A.weight")) {
      pair(module, false).a = &tensor;
    } else if (take(".lora_B.weight")) {
      pair(module, false).b = &tensor;
    } else if (take(".lora_embedding_A")) {
      pair(module, true).a = &tensor;
    } else if (take(".lora_embedding_B")) {
      pair(module, true).b = &tensor;
    } else if (take(".lora_magnitude_vector") || take(".lora_magnitude_vector.weight")) {
      throw config_.unsupported("DoRA", text("tensor ", quote(full)));
    } else if (take(".bias")) {
      throw config_.unsupported("trained biases", text("tensor ", quote(full)));
    } else if (!(take(".modules_to_save.weight") || take(".base_layer.weight") || take(".weight")) ||
               find(module) == nullptr) {
      throw unknown(full);
    } else if (!is_of_base(module, tensor)) {  // PEFT also saves the embedding if it is adapted
      throw config_.unsupported("separate weights for a whole module (modules_to_save, or new tokens)",
                                text("tensor ", quote(full)));
    }
  }

  Pair& pair(std::string_view module, bool of_embedding) {
    const Module* place = find(module);
    if (place == nullptr || of_embedding != (place->product() == number_of(AdaptedProduct::embedding))) {
      throw unknown(module);
    }
    auto found = pairs_.find(module);
    if (found == pairs_.end()) found = pairs_.emplace(std::string(module), Pair{.place = place}).first;
    return found->second;
  }

  /// Accepts the prefix of the model's class, those of the checkpoint, or none.
  const Module* find(std::string_view module) const {
    const NamePrefixes& prefixes = checkpoint_.names().prefixes();
    for (const std::string_view prefix :
         {std::string_view{}, table_.prefix, std::string_view{prefixes.model}, std::string_view{prefixes.head}}) {
      if (!module.starts_with(prefix)) continue;
      const auto found = modules_.find(module.substr(prefix.size()));
      if (found != modules_.end()) return &found->second;
    }
    return nullptr;
  }

  Error unknown(std::string_view what) const {
    return Error("adapter.unknown-module",
                 text(name(), " adapts ", quote(what), ", which '", name_of_path(checkpoint_.folder()), "' (",
                      checkpoint_.family().model_type, ") does not have"),
                 "Use an adapter that was trained on this model");
  }

  /// Whether a tensor equals the model's embedding or head.
  bool is_of_base(std::string_view module, const Tensor& tensor) const {
    const Module* place = find(module);
    const int embedding = number_of(AdaptedProduct::embedding), head = number_of(AdaptedProduct::head);
    if (place == nullptr || (place->product() != embedding && place->product() != head)) return false;
    const bool own_head = place->product() == head && !checkpoint_.settings().tied_embeddings;
    const TensorName stored = checkpoint_.names().weights(own_head ? Role::head : Role::embedding).front();
    const Tensor* base = checkpoint_.find(stored.name);
    if (base == nullptr || base->shape != tensor.shape || !is_floating_point(tensor.dtype)) return false;
    if (!is_floating_point(base->dtype) || tensor.shape.size() != 2) return false;
    std::vector<float> own(static_cast<std::size_t>(tensor.shape[1])), theirs(own.size());
    for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
      convert(tensor, row * tensor.shape[1], tensor.shape[1], own.data());
      convert(*base, row * tensor.shape[1], tensor.shape[1], theirs.data());
      if (own != theirs) return false;
    }
    return true;
  }

  void check(const std::string& module, const Pair& pair) const {
    const Module* const place = pair.place;
    if (pair.a == nullptr || pair.b == nullptr) {
      throw missing(text("no ", pair.a == nullptr ? "lora_A" : "lora_B", " of ", quote(module)));
    }
    const std::int64_t rank = pair.a->shape.empty() ? 0 : pair.a->shape.front();
    check_shape(*pair.a, {rank, place->in});
    check_shape(*pair.b, {place->out, rank});
    const int told = config_.rank(module);
    if (rank < 1 || rank > std::min({std::int64_t{most_rank}, place->in, place->out}) || rank != told) {
      throw Error("adapter.rank",
                  text(name(), ": ", quote(module), " has the rank ", rank, "; the config states ", told,
                       ", and the limit is 1..", std::min({std::int64_t{most_rank}, place->in, place->out})),
                  "Check that adapter_config.json belongs to these weights");
    }
    for (const Tensor* tensor : {pair.a, pair.b}) {
      if (!is_floating_point(tensor->dtype) || tensor->dtype != pair.a->dtype) {
        throw Error("adapter.wrong-dtype",
                    text(name(), ": tensor ", quote(tensor->name), " is ", name_of(tensor->dtype),
                         ", expected F32, F16 or BF16, equal in lora_A and lora_B"),
                    "Save the adapter with all weights in one floating-point type");
      }
      if (const auto index = first_non_finite(*tensor)) {
        throw Error("adapter.non-finite",
                    text(name(), ": tensor ", quote(tensor->name), " [", *index, "]: expected a finite number"),
                    "Copy or train the adapter again");
      }
    }
  }

  void check_shape(const Tensor& tensor, const std::vector<std::int64_t>& shape) const {
    if (tensor.shape == shape) return;
    throw Error("adapter.wrong-shape",
                text(name(), ": tensor ", quote(tensor.name), " is ", shape_text(tensor.shape), ", '",
                     name_of_path(checkpoint_.folder()), "' makes it ", shape_text(shape)),
                "Use an adapter that was trained on this model");
  }

  /// Copies all matrices into one block of memory, aligned to cache lines.
  Adapter copy(const Order& order, const HostMemory& allocate) const {
    constexpr std::size_t line = 64;
    const auto whole_lines = [](std::size_t bytes) { return (bytes + line - 1) / line * line; };
    Adapter adapter{.name = config_.name()};
    for (const auto& [place, change] : order)
      adapter.bytes += whole_lines(change.down_bytes()) + whole_lines(change.up_bytes());
    const std::shared_ptr<std::byte[]> memory = allocate(adapter.bytes + line);
    std::byte* next = memory.get();
    next += (line - reinterpret_cast<std::uintptr_t>(next) % line) % line;
    Checksum sum;
    for (const auto& entry : order) {
      const auto place = entry.first;
      const auto& from = entry.second;
      const Pair& pair = from.named->second;
      LowRank change{.type = pair.a->dtype,
                     .scale = config_.scale(from.named->first),
                     .rank = static_cast<int>(pair.a->shape[0]),
                     .in = pair.place->in,
                     .first = from.part->first,
                     .out = from.part->out};
      visit_elements(change, [&]<class Element>(Element) {
        copy_columns<Element>(*pair.a, next, from.part->columns);
        change.down = std::exchange(next, next + whole_lines(from.down_bytes()));
        transpose<Element>(*pair.b, from.part->out, next, from.part->rows);
        change.up = std::exchange(next, next + whole_lines(from.up_bytes()));
      });
      for (const std::int64_t number : {std::int64_t{place.first}, place.second, std::int64_t{change.rank}})
        sum.add(number);
      sum.add(change.scale);
      sum.add(static_cast<int>(change.type));
      sum.add({pair.a->bytes, pair.a->size_bytes});
      sum.add({pair.b->bytes, pair.b->size_bytes});
      while (static_cast<int>(adapter.begins.size()) <= place.first)
        adapter.begins.push_back(static_cast<int>(adapter.changes.size()));
      adapter.changes.push_back(change);
    }
    adapter.begins.push_back(static_cast<int>(adapter.changes.size()));
    adapter.digest = std::max<std::uint64_t>(1, sum.value());
    adapter.memory = memory;
    return adapter;
  }

  static std::int64_t stored(const std::vector<std::int64_t>& order, std::int64_t index) {
    return order.empty() ? index : order[static_cast<std::size_t>(index)];
  }

  template <class Element>
  static void copy_columns(const Tensor& tensor, std::byte* to, const std::vector<std::int64_t>& columns) {
    if (columns.empty()) {
      std::memcpy(to, tensor.bytes, tensor.size_bytes);
      return;
    }
    constexpr std::int64_t size = sizeof(Element);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const std::int64_t width = tensor.shape[1], from = i / width * width + stored(columns, i % width);
      std::memcpy(to + i * size, tensor.bytes + from * size, sizeof(Element));
    }
  }

  /// [rows, columns] -> [columns, out]
  template <class Element>
  static void transpose(const Tensor& tensor, std::int64_t out, std::byte* to, const std::vector<std::int64_t>& rows) {
    const std::int64_t columns = tensor.shape[1];
    constexpr std::int64_t size = sizeof(Element);
    for (std::int64_t r = 0; r < out; ++r) {
      for (std::int64_t c = 0; c < columns; ++c)
        std::memcpy(to + (c * out + r) * size, tensor.bytes + (stored(rows, r) * columns + c) * size, sizeof(Element));
    }
  }

  static constexpr int most_rank = PeftConfig::most_rank;

  std::filesystem::path folder_;
  const Checkpoint& checkpoint_;
  const TensorTable& table_;
  PeftConfig config_;
  std::map<std::string, Module, std::less<>> modules_;
  Pairs pairs_;
};

}  // namespace detail

SLM_INLINE Adapter read_peft(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                             const HostMemory& allocate) {
  return detail::PeftFolder(folder, checkpoint).read(allocate);
}

}}
