// Checks the results of collective operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/ranks/communicator.hpp"

namespace slm::testing {

/// All collective operations, with sizes that differ by rank; returns the number of wrong results.
template <class C>
int wrong_answers(const C& group, int round) {
  int wrong = 0;
  const auto size = static_cast<std::uint64_t>(group.size()), rank = static_cast<std::uint64_t>(group.rank());
  const auto number = [&](std::uint64_t of, std::uint64_t i) {
    return of * 1000 + i + static_cast<std::uint64_t>(round);
  };

  std::vector<std::uint64_t> share, expected, all;  // rank r sends r numbers: rank 0 none
  std::vector<std::size_t> sizes;
  for (std::uint64_t r = 0; r < size; ++r) {
    for (std::uint64_t i = 0; i < r; ++i) expected.push_back(number(r, i));
    sizes.push_back(r * sizeof(std::uint64_t));
  }
  for (std::uint64_t i = 0; i < rank; ++i) share.push_back(number(rank, i));
  all.resize(expected.size());
  group.all_gather(std::as_bytes(std::span(share)), sizes, std::as_writable_bytes(std::span(all)));
  wrong += all != expected;

  const int root = round % group.size();
  std::uint64_t told = number(rank, 7);
  group.broadcast(std::as_writable_bytes(std::span(&told, 1)), root);
  wrong += told != number(static_cast<std::uint64_t>(root), 7);

  std::vector<std::uint64_t> sum{rank + 1, 2}, most{rank, size - rank, ~std::uint64_t{0}};
  group.all_reduce(sum, ranks::Reduction::sum);
  group.all_reduce(most, ranks::Reduction::max);
  wrong += sum != std::vector{size * (size + 1) / 2, 2 * size};
  wrong += most != std::vector{size - 1, size, ~std::uint64_t{0}};
  group.barrier();
  return wrong;
}

}  // namespace slm::testing
