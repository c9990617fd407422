// Identifies the weights of a model folder by a digest over its tensors. Other engines can recompute it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/sha256.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/io/checkpoint.hpp"

namespace slm::bench {

using slm::detail::Sha256;

/// "sha256:..." over lines of name, type, shape and SHA-256 of every tensor, sorted by name. bench/peers/peer.py
/// computes the same digest from the weights that an engine has loaded.
inline std::string weights_digest(const Checkpoint& checkpoint) {
  std::vector<std::pair<std::string, const Tensor*>> lines;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.ends_with("rotary_emb.inv_freq")) continue;  // a table that every engine computes itself
    std::string shape;
    for (const std::int64_t extent : tensor->shape) shape += text(shape.empty() ? "" : ",", extent);
    lines.emplace_back(text(name, " ", name_of(tensor->dtype), " [", shape, "] "), tensor);
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < lines.size(); i = next++) {
      Sha256 hash;
      hash.update({lines[i].second->bytes, lines[i].second->size_bytes});
      lines[i].first += hash.finish() + "\n";
    }
  };
  {
    std::vector<detail::JoinedThread> helpers;
    try {
      for (int i = 1; i < usable_cores(); ++i) helpers.push_back(detail::start_thread(work));
    } catch (const Error&) {  // no further threads: the running ones do all of the work
    }
    work();
  }
  checkpoint.check_unchanged();
  Sha256 all;
  for (const auto& [line, tensor] : lines) all.update(line);
  return "sha256:" + all.finish();
}

}  // namespace slm::bench
