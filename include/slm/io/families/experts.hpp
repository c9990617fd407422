// Fields of config.json that families with experts share.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// counts: names of the number of experts; the file has one of them, or several with one value.
inline void read_experts(const JsonFields& fields, std::initializer_list<const char*> counts, const char* ffn,
                         ModelDescription& model, const char* chosen = "num_experts_per_tok") {
  MixtureConfig& mixture = model.config.mixture;
  const auto stated = std::find_if(counts.begin(), counts.end(), [&](const char* name) { return fields.has(name); });
  const char* const count = stated == counts.end() ? *counts.begin() : *stated;
  mixture.experts = fields.integer(count, 1, 1024);
  for (const char* name : counts) {
    if (!fields.has(name) || fields.integer(name, 1, 1024) == mixture.experts) continue;
    throw contradictory(fields.file(),
                        text(count, " ", mixture.experts, " and ", name, " ", fields.integer(name, 1, 1024)));
  }
  mixture.chosen = fields.integer(chosen, 1, 1024);
  if (mixture.chosen > mixture.experts) {
    throw contradictory(fields.file(), text(chosen, " ", mixture.chosen, " and ", count, " ", mixture.experts));
  }
  mixture.ffn = fields.integer(ffn, 1, 1 << 22);
}

/// `best`: experts of a group that count for its mark.
inline void read_expert_groups(const JsonFields& fields, int best, ModelDescription& model) {
  const MixtureConfig& mixture = model.config.mixture;
  RouterSettings& router = model.settings.router;
  const int groups = fields.integer("n_group", 1, 1024, 1), kept = fields.integer("topk_group", 1, 1024, 1);
  if (groups == 1) return;
  const int size = mixture.experts / groups;
  if (mixture.experts % groups != 0 || size < best || kept > groups || mixture.chosen > kept * size) {
    throw contradictory(fields.file(),
                        text(mixture.chosen, " of ", mixture.experts, " experts in ", kept, " of ", groups, " groups"));
  }
  router.groups = groups;
  router.kept_groups = kept;
  router.by_best = best == 1;
}

/// Sets the layers with an MLP, of config.ffn. Without such layers the file's width of MLPs has no meaning.
inline void set_dense_layers(const std::string& file, std::vector<bool> dense, ModelDescription& model) {
  const auto count = std::count(dense.begin(), dense.end(), true);
  if (count == model.config.layers) throw unsupported(file, "a mixture of experts without a layer that has experts");
  if (count == 0) {
    model.config.ffn = model.config.mixture.ffn;
  } else {
    model.settings.dense_layers = std::move(dense);
  }
}

}}}
