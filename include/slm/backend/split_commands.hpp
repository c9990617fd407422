// SplitCommands: commands from rank 0's device to the other ranks, about KV cache pages, adapters and steps.
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
#include "slm/ranks/message.hpp"
#include "slm/ranks/team.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Belongs to one device, whose number is equal on all ranks.
template <Backend B, ranks::Communicator C>
class SplitCommands : public std::enable_shared_from_this<SplitCommands<B, C>> {
  enum class Command : int { step, take_pages, give_pages, copy, read, write, take_adapter, give_adapter };
  using Message = ranks::Message;
  using Pages = SharedPages<B, C>;
  using Place = std::function<Adapter(const Adapter&)>;

 public:
  /// place: converts a whole adapter to this rank's share.
  SplitCommands(std::shared_ptr<Pages> pages, std::shared_ptr<ranks::Team<C>> team, int number, Place place)
      : pages_(std::move(pages)), team_(std::move(team)), number_(number), place_(std::move(place)) {}

  std::unique_lock<std::mutex> lock() { return team_->lock(); }

  // The following functions send on rank 0 and do nothing on other ranks.

  /// Requires the lock, which the step keeps.
  void send_step(const StepPlan& plan) {
    if (!team_->leads()) return;
    Message message = of(Command::step);
    message.put_all(plan.rows).put<std::uint64_t>(plan.sequences.size());
    for (const PlanSequence& sequence : plan.sequences)
      message.put(sequence.first_row)
          .put(sequence.rows)
          .put(sequence.rope)
          .put(sequence.first_page)
          .put(sequence.pages)
          .put(sequence.first_state)
          .put(sequence.adapter == nullptr ? nullptr : sequence.adapter->memory.get());
    message.put_all(plan.pages).put_all(plan.states).put_all(plan.outputs).put(plan.format).put(plan.result);
    team_->send_all(message);
  }

  /// Aborts the team after a step failed, with the lock held.
  void give_up() { team_->give_up(); }

  void send_take_pages(const std::byte* name, const KvPageShape& shape, std::size_t count) {
    Message message = of(Command::take_pages);
    message.put(name).put_all(std::span(shape.layers)).put(shape.of_layers).put(shape.head_bytes);
    message.put(shape.parts).put(shape.heads).put(shape.norm).put(shape.whole).put(count);
    send(message);
  }
  void send_give_pages(const std::byte* name) noexcept { send_end(Command::give_pages, name); }
  void send_copy(std::byte* to, const std::byte* from) { send(of(Command::copy).put(to).put(from)); }
  void send_write(std::byte* page, std::span<const std::byte> contents) {
    send(of(Command::write).put(page).put_all(contents));
  }

  /// Other ranks keep the adapter until the returned pointer is released. It is the memory of rank 0's share, and its
  /// address is the handle.
  std::shared_ptr<const std::byte[]> send_adapter(const Adapter& whole, std::shared_ptr<const std::byte[]> own) {
    if (!team_->leads()) return own;
    const std::byte* const name = own.get();
    Message message = of(Command::take_adapter);
    put_adapter(message.put(name), whole);
    send(message);
    return {name, [commands = this->shared_from_this(), own = std::move(own)](const std::byte* memory) {
              commands->send_end(Command::give_adapter, memory);
            }};
  }

  /// Rank 0 only: reads the contents of a page.
  void read(std::byte* contents, const std::byte* page) {
    const auto speaks = team_->lock();
    team_->send_all(of(Command::read).put(page));
    team_->together([&] { pages_->read(contents, page); });
  }

  // Other ranks only.

  void on_step(std::function<void(const StepPlan&)> take) { take_step_ = std::move(take); }

  /// Executes a command from rank 0.
  void execute(Message& message) {
    switch (message.take<Command>()) {
      case Command::step: return step(message);
      case Command::take_pages: {
        const auto* const name = message.take<const std::byte*>();
        KvPageShape shape;
        message.take_all(shape.layers);
        shape.of_layers = message.take<int>();
        shape.head_bytes = message.take<std::size_t>();
        shape.parts = message.take<std::size_t>();
        shape.heads = message.take<Heads>();
        shape.norm = message.take<QkNorm>();
        shape.whole = message.take<bool>();
        return pages_->hold(name, std::move(shape), message.take<std::size_t>());
      }
      case Command::give_pages: return pages_->give_up(message.take<const std::byte*>());
      case Command::copy: {
        std::byte* const to = message.take<std::byte*>();
        return pages_->copy(to, message.take<const std::byte*>());
      }
      case Command::read: {
        const auto* const page = message.take<const std::byte*>();
        contents_.resize(pages_->bytes_of(page));
        return pages_->read(contents_.data(), page);
      }
      case Command::write: {
        std::byte* const page = message.take<std::byte*>();
        message.take_all(contents_);
        return pages_->write(page, contents_.data());
      }
      case Command::take_adapter: {
        const auto* const name = message.take<const std::byte*>();
        return take_adapter(message, [&](const Adapter& whole) { adapters_.insert_or_assign(name, place_(whole)); });
      }
      case Command::give_adapter: adapters_.erase(message.take<const std::byte*>()); return;
    }
  }

 private:
  Message of(Command command) const { return std::move(Message{}.put(number_).put(command)); }

  void send(const Message& message) {
    if (!team_->leads()) return;
    const auto speaks = team_->lock();
    team_->send_all(message);
  }

  /// Announces that a handle is released. If that fails, the team is aborted.
  void send_end(Command command, const std::byte* name) noexcept {
    try {
      if (team_->failure().empty()) send(of(command).put(name));
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

  void step(Message& message) {
    message.take_all(rows_);
    sequences_.resize(message.take<std::uint64_t>());
    for (PlanSequence& sequence : sequences_) {
      for (int* const number : {&sequence.first_row, &sequence.rows, &sequence.rope, &sequence.first_page,
                                &sequence.pages, &sequence.first_state})
        *number = message.take<int>();
      const auto* const adapter = message.take<const std::byte*>();
      sequence.adapter = adapter_named(adapter);
    }
    message.take_all(named_);
    message.take_all(states_);
    message.take_all(outputs_);
    const auto format = message.take<KvFormat>();
    take_step_({.rows = rows_,
                .sequences = sequences_,
                .pages = named_,
                .states = states_,
                .outputs = outputs_,
                .draws = {},
                .format = format,
                .result = message.take<RowResult>()});
  }

  std::shared_ptr<Pages> pages_;
  std::shared_ptr<ranks::Team<C>> team_;
  int number_;
  Place place_;
  std::function<void(const StepPlan&)> take_step_;
  std::map<const std::byte*, Adapter> adapters_;  // other ranks only, by handle

  std::vector<PlanRow> rows_;  // of the current step, like the members below
  std::vector<PlanSequence> sequences_;
  std::vector<std::byte*> named_, states_;
  std::vector<int> outputs_;
  std::vector<std::byte> contents_;  // contents of a page
};

}}}
