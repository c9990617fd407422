// SplitOrders: how rank 0's device tells the others' what happens: to the pages of keys and values, and in each step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/core/error.hpp"
#include "slm/ranks/letter.hpp"
#include "slm/ranks/team.hpp"

namespace slm::inline v0_1::backend {

/// Of one device; its number is known to all ranks. Every rank has the same pages, and says of them where rank 0 has
/// them.
template <Backend B, ranks::Communicator C>
class SplitOrders {
  using Bytes = typename B::template Buffer<std::byte>;
  enum class Order : int { step, take_pages, give_pages, copy, write };
  using Letter = ranks::Letter;

 public:
  /// Device memory that the other ranks hold too, and give up with this.
  struct Pages {
    Bytes own;
    std::shared_ptr<const void> others = {};

    std::byte* data() { return own.data(); }
    std::size_t size() const { return own.size(); }
  };

  SplitOrders(B device, std::shared_ptr<ranks::Team<C>> team, int number)
      : device_(std::move(device)), team_(std::move(team)), number_(number) {}

  std::unique_lock<std::mutex> lock() { return team_->lock(); }

  // On rank 0. Elsewhere they do nothing: what a model does there, it was told to.

  /// With the lock, which the step keeps.
  void tell_step(const StepPlan& plan) {
    if (!team_->leads()) return;
    Letter letter = of(Order::step);
    letter.put_all(plan.rows).put<std::uint64_t>(plan.sequences.size());
    for (const PlanSequence& sequence : plan.sequences)
      letter.put(sequence.first_row).put(sequence.rows).put(sequence.rope).put(sequence.first_page).put(sequence.pages);
    letter.put_all(plan.pages).put_all(plan.outputs).put(plan.format).put(plan.want);
    team_->tell(letter);
  }

  /// A step has ended in the middle, with the lock held.
  void give_up() { team_->give_up(); }

  static Pages take_pages(const std::shared_ptr<SplitOrders>& orders, std::size_t bytes) {
    Pages pages{orders->device_.template allocate<std::byte>(bytes)};
    const std::byte* const place = pages.data();
    orders->tell(of(*orders, Order::take_pages).put(place).template put<std::uint64_t>(bytes));
    pages.others = {place, [orders](const std::byte* first) {
                      try {
                        orders->tell(of(*orders, Order::give_pages).put(first));
                      } catch (const Error&) {  // there is nobody left to tell
                      }
                    }};
    return pages;
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    tell(of(Order::copy).put(to).put(from).template put<std::uint64_t>(bytes));
    device_.copy(to, from, bytes);
  }

  void write(std::byte* to, const std::byte* host, std::size_t bytes) {
    tell(of(Order::write).put(to).put_all(std::span(host, bytes)));
    device_.write(to, host, bytes);
  }

  // On the others.

  void on_step(std::function<void(const StepPlan&)> take) { take_step_ = std::move(take); }

  /// Does what rank 0 has told of this device.
  void obey(Letter& letter) {
    switch (letter.take<Order>()) {
      case Order::step: return step(letter);
      case Order::take_pages: {
        const auto* const place = letter.take<const std::byte*>();
        held_.insert_or_assign(place, device_.template allocate<std::byte>(letter.take<std::uint64_t>()));
        return;
      }
      case Order::give_pages: held_.erase(letter.take<const std::byte*>()); return;
      case Order::copy: {
        std::byte* const to = own(letter.take<std::byte*>());
        const std::byte* const from = own(letter.take<std::byte*>());
        return device_.copy(to, from, letter.take<std::uint64_t>());
      }
      case Order::write: {
        std::byte* const to = own(letter.take<std::byte*>());
        letter.take_all(written_);
        return device_.write(to, written_.data(), written_.size());
      }
    }
  }

 private:
  static Letter of(const SplitOrders& orders, Order order) {
    return std::move(Letter{}.put(orders.number_).put(order));
  }
  Letter of(Order order) const { return of(*this, order); }

  void tell(const Letter& letter) {
    if (!team_->leads()) return;
    const auto speaks = team_->lock();
    team_->tell(letter);
  }

  void step(Letter& letter) {
    letter.take_all(rows_);
    sequences_.resize(letter.take<std::uint64_t>());
    for (PlanSequence& sequence : sequences_) {
      for (int* const number :
           {&sequence.first_row, &sequence.rows, &sequence.rope, &sequence.first_page, &sequence.pages})
        *number = letter.take<int>();
    }
    letter.take_all(pages_);
    letter.take_all(outputs_);
    const auto format = letter.take<KvFormat>();
    std::transform(pages_.begin(), pages_.end(), pages_.begin(), [this](std::byte* page) { return own(page); });
    take_step_({.rows = rows_,
                .sequences = sequences_,
                .pages = pages_,
                .outputs = outputs_,
                .draws = {},
                .format = format,
                .want = letter.take<Want>()});
  }

  /// Where this rank has what lies at `place` on rank 0.
  std::byte* own(std::byte* place) {
    if (place == nullptr) return nullptr;
    auto after = held_.upper_bound(place);
    if (after != held_.begin()) {
      auto& [first, bytes] = *--after;
      const auto offset = static_cast<std::size_t>(place - first);
      if (offset < bytes.size()) return bytes.data() + offset;
    }
    throw Error("ranks.out-of-step", "rank 0 names a page that this rank does not hold",
                "Start the same program on every rank");
  }

  B device_;
  std::shared_ptr<ranks::Team<C>> team_;
  int number_;
  std::function<void(const StepPlan&)> take_step_;

  std::map<const std::byte*, Bytes, std::less<>> held_;  // by where rank 0 has them
  std::vector<PlanRow> rows_;                            // of the present step, as are the following
  std::vector<PlanSequence> sequences_;
  std::vector<std::byte*> pages_;
  std::vector<int> outputs_;
  std::vector<std::byte> written_;
};

}  // namespace slm::backend
