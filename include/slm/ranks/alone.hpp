// ranks::Alone: the communicator of a single rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

struct Alone {
  int rank() const { return 0; }
  int size() const { return 1; }
  void broadcast(std::span<std::byte>, int) const {}
  void all_gather(std::span<const std::byte> share, std::span<const std::size_t>, std::span<std::byte> all) const {
    std::copy(share.begin(), share.end(), all.begin());
  }
  void all_reduce(std::span<std::uint64_t>, Reduction) const {}
  void barrier() const {}
  Alone split(int, int) const { return {}; }
  void fail(std::string_view) const {}
  void poll() const {}
};

static_assert(Communicator<Alone>);

}}}
