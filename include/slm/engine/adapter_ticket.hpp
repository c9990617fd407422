// AdapterTicket: an adapter that somebody has asked an AdapterStore for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/engine/adapter_floors.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// A handle: copies are the same ticket. As long as there is one, the adapter is brought. Whatever the name comes to
/// mean, it stands for what the name meant when it was asked for.
class AdapterTicket {
 public:
  AdapterTicket() = default;  // of no adapter; it is asked nothing
  explicit AdapterTicket(std::shared_ptr<detail::AdapterWish> wish) : wish_(std::move(wish)) {}
  explicit operator bool() const { return wish_ != nullptr; }

  const std::string& name() const { return wish_->one->name; }
  const std::filesystem::path& folder() const { return wish_->one->folder; }

  /// The adapter; null while it is on its way. It is not evicted, and its memory is the store's, as long as anybody
  /// holds the handle. Throws the Error for which it could not be loaded.
  AdapterRef take() const { return wish_->floors->take(*wish_); }
  /// The same, as soon as it is there: as long as others hold all the memory that it could take, this waits for them.
  AdapterRef wait() const { return wish_->floors->wait(*wish_); }

  /// Whether it waits for memory that others use.
  bool lacks_room() const { return wish_->one->lacks_room; }
  /// It is next: it comes before all others, and takes the place of those that are not in use.
  void press() const { wish_->floors->press(*wish_->one); }
  /// Called by any thread when it is there, could not be loaded, or lacks room; at any time until the ticket is gone,
  /// and maybe once after. Must not take long nor throw.
  void on_news(std::function<void()> wake) const { wish_->floors->on_news(*wish_, std::move(wake)); }

  /// Whether it was taken, or told to have failed.
  bool settled() const { return wish_->digest != 0 || wish_->failed; }
  /// Adapter::digest of what was taken; 0: nothing yet.
  std::uint64_t digest() const { return wish_->digest; }

 private:
  std::shared_ptr<detail::AdapterWish> wish_;
};

}}
