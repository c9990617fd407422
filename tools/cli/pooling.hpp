// Chooses the default pooling of hidden states.
#pragma once

#include <filesystem>

#include "slm/decode/request.hpp"
#include "slm/io/declared_pooling.hpp"

namespace cli {

struct PoolingChoice {
  slm::Pooling pooling = slm::Pooling::mean;
  bool normalize = false;  // the model declares vectors of length 1
};

/// The pooling that the model declares, or the mean if it declares none. Throws Error ("cli.unsupported-pooling") if
/// slm does not support the declared pooling.
inline PoolingChoice choose_pooling(const std::filesystem::path& model) {
  const auto declared = slm::declared_pooling(model);
  if (!declared) return {};
  const bool last = declared->pooling == "last";
  if ((last || declared->pooling == "mean") && declared->more.empty()) {
    return {.pooling = last ? slm::Pooling::last : slm::Pooling::mean, .normalize = declared->normalize};
  }
  throw slm::Error("cli.unsupported-pooling",
                   slm::text("'", model.string(), "' declares the pooling ", declared->pooling,
                             declared->more.empty() ? "" : " with ", declared->more, ", expected mean or last only"),
                   "Set the pooling: --pooling of slm embed, `pooling` of a request");
}

}  // namespace cli
