// SplitOrders: commands from rank 0's device to the other ranks, about KV cache pages, adapters and steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/adapter_share.hpp"
#include "slm/backend/concept.hpp"
#include "slm/backend/page_shape.hpp"
#include "slm/backend/shared_pages.hpp"
#include "slm/core/error.hpp"
#include "slm/ranks/letter.hpp"
#include "slm/ranks/team.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Belongs to one device, whose number is equal on all ranks.
template <Backend B, ranks::Communicator C>
class SplitOrders : public std::enable_shared_from_this<SplitOrders<B, C>> {
  enum class Order : int { step, take_pages, give_pages, copy, read, write, take_adapter, give_adapter };
  using Letter = ranks::Letter;
  using Pages = SharedPages<B, C>;
  using Place = std::function<Adapter(const Adapter&)>;

 public:
  /// place: converts a whole adapter to this rank's share.
  SplitOrders(std::shared_ptr<Pages> pages, std::shared_ptr<ranks::Team<C>> team, int number, Place place)
      : pages_(std::move(pages)), team_(std::move(team)), number_(number), place_(std::move(place)) {}

  std::unique_lock<std::mutex> lock() { return team_->lock(); }

  // The following functions send on rank 0 and do nothing on other ranks.

  /// Requires the lock, which the step keeps.
  void tell_step(const StepPlan& plan) {
    if (!team_->leads()) return;
    Letter letter = of(Order::step);
    letter.put_all(plan.rows).put<std::uint64_t>(plan.sequences.size());
    for (const PlanSequence& sequence : plan.sequences)
      letter.put(sequence.first_row)
          .put(sequence.rows)
          .put(sequence.rope)
          .put(sequence.first_page)
          .put(sequence.pages)
          .put(sequence.adapter == nullptr ? nullptr : sequence.adapter->memory.get());
    letter.put_all(plan.pages).put_all(plan.outputs).put(plan.format).put(plan.want);
    team_->tell(letter);
  }

  /// Aborts the team after a step failed, with the lock held.
  void give_up() { team_->give_up(); }

  void tell_take_pages(const std::byte* name, const KvPageShape& shape, std::size_t count) {
    Letter letter = of(Order::take_pages);
    letter.put(name).put_all(std::span(shape.layers)).put(shape.of_layers).put(shape.head_bytes);
    letter.put(shape.heads).put(shape.norm).put(count);
    tell(letter);
  }
  void tell_give_pages(const std::byte* name) noexcept { tell_end(Order::give_pages, name); }
  void tell_copy(std::byte* to, const std::byte* from) { tell(of(Order::copy).put(to).put(from)); }
  void tell_write(std::byte* page, std::span<const std::byte> contents) {
    tell(of(Order::write).put(page).put_all(contents));
  }

  /// Other ranks keep the adapter until the returned pointer is released. It is the memory of rank 0's share, and its
  /// address is the handle.
  std::shared_ptr<const std::byte[]> tell_adapter(const Adapter& whole, std::shared_ptr<const std::byte[]> own) {
    if (!team_->leads()) return own;
    const std::byte* const name = own.get();
    Letter letter = of(Order::take_adapter);
    put_adapter(letter.put(name), whole);
    tell(letter);
    return {name, [orders = this->shared_from_this(), own = std::move(own)](const std::byte* memory) {
              orders->tell_end(Order::give_adapter, memory);
            }};
  }

  /// Rank 0 only: reads the contents of a page.
  void read(std::byte* contents, const std::byte* page) {
    const auto speaks = team_->lock();
    team_->tell(of(Order::read).put(page));
    team_->together([&] { pages_->read(contents, page); });
  }

  // Other ranks only.

  void on_step(std::function<void(const StepPlan&)> take) { take_step_ = std::move(take); }

  /// Executes a command from rank 0.
  void obey(Letter& letter) {
    switch (letter.take<Order>()) {
      case Order::step: return step(letter);
      case Order::take_pages: {
        const auto* const name = letter.take<const std::byte*>();
        KvPageShape shape;
        letter.take_all(shape.layers);
        shape.of_layers = letter.take<int>();
        shape.head_bytes = letter.take<std::size_t>();
        shape.heads = letter.take<Heads>();
        shape.norm = letter.take<QkNorm>();
        return pages_->hold(name, std::move(shape), letter.take<std::size_t>());
      }
      case Order::give_pages: return pages_->give_up(letter.take<const std::byte*>());
      case Order::copy: {
        std::byte* const to = letter.take<std::byte*>();
        return pages_->copy(to, letter.take<const std::byte*>());
      }
      case Order::read: {
        const auto* const page = letter.take<const std::byte*>();
        contents_.resize(pages_->bytes_of(page));
        return pages_->read(contents_.data(), page);
      }
      case Order::write: {
        std::byte* const page = letter.take<std::byte*>();
        letter.take_all(contents_);
        return pages_->write(page, contents_.data());
      }
      case Order::take_adapter: {
        const auto* const name = letter.take<const std::byte*>();
        return take_adapter(letter, [&](const Adapter& whole) { adapters_.insert_or_assign(name, place_(whole)); });
      }
      case Order::give_adapter: adapters_.erase(letter.take<const std::byte*>()); return;
    }
  }

 private:
  Letter of(Order order) const { return std::move(Letter{}.put(number_).put(order)); }

  void tell(const Letter& letter) {
    if (!team_->leads()) return;
    const auto speaks = team_->lock();
    team_->tell(letter);
  }

  /// Announces that a handle is released. If that fails, the team is aborted.
  void tell_end(Order order, const std::byte* name) noexcept {
    try {
      if (team_->failure().empty()) tell(of(order).put(name));
    } catch (...) {
      const auto speaks = team_->lock();
      team_->give_up();
    }
  }

  const Adapter* adapter_named(const std::byte* name) const {
    if (name == nullptr) return nullptr;
    const auto found = adapters_.find(name);
    if (found != adapters_.end()) return &found->second;
    throw Error("ranks.out-of-step", "expected an adapter of this rank, found an unknown handle from rank 0",
                "Start the same program on every rank");
  }

  void step(Letter& letter) {
    letter.take_all(rows_);
    sequences_.resize(letter.take<std::uint64_t>());
    for (PlanSequence& sequence : sequences_) {
      for (int* const number :
           {&sequence.first_row, &sequence.rows, &sequence.rope, &sequence.first_page, &sequence.pages})
        *number = letter.take<int>();
      const auto* const adapter = letter.take<const std::byte*>();
      sequence.adapter = adapter_named(adapter);
    }
    letter.take_all(named_);
    letter.take_all(outputs_);
    const auto format = letter.take<KvFormat>();
    take_step_({.rows = rows_,
                .sequences = sequences_,
                .pages = named_,
                .outputs = outputs_,
                .draws = {},
                .format = format,
                .want = letter.take<Want>()});
  }

  std::shared_ptr<Pages> pages_;
  std::shared_ptr<ranks::Team<C>> team_;
  int number_;
  Place place_;
  std::function<void(const StepPlan&)> take_step_;
  std::map<const std::byte*, Adapter> adapters_;  // other ranks only, by handle

  std::vector<PlanRow> rows_;  // of the current step, like the members below
  std::vector<PlanSequence> sequences_;
  std::vector<std::byte*> named_;
  std::vector<int> outputs_;
  std::vector<std::byte> contents_;  // contents of a page
};

}}}
