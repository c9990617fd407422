// DraftFaults: what happens when a draft fails.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/decode/active_request.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// After the first fault the request continues without a draft.
class DraftFaults {
 public:
  /// The active request must outlive this.
  DraftFaults(ActiveRequest& active, std::function<void(std::string_view)> on_fault)
      : active_(active), on_fault_(std::move(on_fault)) {}

  void start(bool on) { on_ = on; }
  /// Whether the request still drafts.
  bool on() const { return on_; }

  /// Runs a step of a source. Errors of memory and device are rethrown, since the target would fail too.
  template <class Step>
  void guard(Step&& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const Error& error) {
      const std::string part = error.id().substr(0, error.id().find('.'));
      if (part == "cache" || part == "backend" || part == "gpu" || part == "ranks") throw;
      report(text("the draft failed: ", error.what()));
    } catch (const std::exception& error) {
      report(text("the draft failed: ", error.what()));
    } catch (...) {
      report("the draft failed with an unknown exception");
    }
  }

  void report(const std::string& reason) {
    ++active_.stats.draft_faults;
    on_ = false;
    if (!active_.stats.disabled_reason.empty()) return;
    active_.stats.disabled_reason = reason;
    if (on_fault_) on_fault_(reason);
  }

 private:
  ActiveRequest& active_;
  std::function<void(std::string_view)> on_fault_;
  bool on_ = false;
};

}}}
