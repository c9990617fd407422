// Communicator: communication between the ranks of one model. A rank is a thread or a process that runs the same
// program as the others and holds its share of the weights.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Only integers are reduced: a float sum depends on its order, and ranks must not change a bit.
enum class Reduction { max, sum };

/// A handle; copies are the same rank. All ranks make the same calls in the same order, one thread each.
///  rank, size   0 <= rank < size
///  broadcast    copies the bytes of rank `root` to all ranks
///  all_gather   all = the concatenated shares of rank 0, 1, ...; rank r contributes sizes[r] bytes
///  all_reduce   numbers[i] = the maximum, or the sum, over all ranks
///  barrier      returns when all ranks have called it
///  split        ranks of one colour form a new group, ordered by key, then by rank
///  fail         marks this rank as failed: the others stop waiting and throw ranks.failed, or their processes end
///  poll         throws ranks.failed if a rank is known to have failed; does not wait
/// Every call throws Error if another rank has failed or does not arrive in time. No rank waits forever.
template <class C>
concept Communicator = std::copyable<C> &&
    requires(const C& ranks, std::span<std::byte> bytes, std::span<const std::byte> share,
             std::span<const std::size_t> sizes, std::span<std::uint64_t> numbers, int number,
             const std::string& reason) {
  { ranks.rank() } -> std::same_as<int>;
  { ranks.size() } -> std::same_as<int>;
  ranks.broadcast(bytes, number);
  ranks.all_gather(share, sizes, bytes);
  ranks.all_reduce(numbers, Reduction::sum);
  ranks.barrier();
  { ranks.split(number, number) } -> std::same_as<C>;
  ranks.fail(reason);
  ranks.poll();
};

/// Call in an exception handler: fails this rank with the exception's message.
template <Communicator C>
void fail_with_exception(const C& ranks) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error.what());
  } catch (...) {
    ranks.fail("an exception of an unknown type");
  }
}

/// Throws ranks.different on every rank unless all ranks pass the same number. The message names the first rank that
/// differs.
template <Communicator C>
void require_same(const C& ranks, std::string_view what, std::uint64_t number) {
  const auto count = static_cast<std::size_t>(ranks.size());
  std::vector<std::uint64_t> numbers(count);
  const std::vector<std::size_t> sizes(count, sizeof number);
  ranks.all_gather(std::as_bytes(std::span(&number, 1)), sizes, std::as_writable_bytes(std::span(numbers)));
  for (std::size_t rank = 1; rank < count; ++rank) {
    if (numbers[rank] == numbers[0]) continue;
    throw Error("ranks.different", text("rank ", rank, " expected the same ", what, " as rank 0, found another"),
                "Start the same program with the same files and options on every rank");
  }
}

}}}
