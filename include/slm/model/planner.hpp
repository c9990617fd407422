// Planner: divides a batch into steps that fit the device, with the pages that each step reads and writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "slm/backend/plan.hpp"
#include "slm/core/draw.hpp"
#include "slm/core/error.hpp"
#include "slm/lm/batch.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/lm/sequence.hpp"
#include "slm/model/paged_sequence.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Limits of model and device for a planner.
struct PlanLimits {
  int max_rows = 0;          // per step
  int max_chained_rows = 0;  // rows of the first step of a chain; 0: the device has no chains
  int original_context = 0;  // tokens up to which LongRoPE uses its short factors
};

/// Throws Error unless the batch is valid for the model.
inline void check_batch(const Batch& batch, const ModelInfo& info) {
  const std::span<const Batch::Item> items = batch.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Batch::Item& item = items[i];
    const ResultSpec& spec = item.spec;
    for (std::size_t j = 0; j < i; ++j) {
      if (items[j].sequence != item.sequence) continue;
      throw Error("batch.same-sequence", text("items ", j, " and ", i, " of the batch have the same sequence"),
                  "Add each sequence once, with all its tokens, or fork it");
    }
    const int length = item.sequence->length();
    const auto more = static_cast<std::int64_t>(item.count) + std::max(0, spec.chain - 1);
    if (more > info.context - length) {
      throw Error(
          "batch.context-full",
          text("'", info.name, "' cannot append ", more, " tokens to ", length, ": its context is ", info.context),
          "Shorten the prompt, or load the model with a larger context (LoadOptions::context, --context)");
    }
    if (spec.result != RowResult::nothing && (spec.rows < 0 || static_cast<std::size_t>(spec.rows) > item.count)) {
      throw Error("batch.rows",
                  text("item ", i, " requests results for ", spec.rows, " of its ", item.count, " tokens"),
                  "Request at most one row per token");
    }
    if (info.headless && (spec.result == RowResult::logits || spec.result == RowResult::choice))
      throw no_head(info.name);
    if (spec.result == RowResult::choice && !info.chooses) {
      throw Error("batch.choice", text("'", info.name, "' cannot choose tokens on its device"),
                  "Request logits, or check ModelInfo::chooses first");
    }
    const bool chain = spec.result == RowResult::choice && spec.chain > 1;
    if (spec.chain < 1 || (spec.chain > 1 && (!chain || spec.rows != 1 || spec.chain != items.front().spec.chain))) {
      throw Error("batch.steps", text("item ", i, " requests ", spec.chain, " steps"),
                  "Request chains (RowResult::choice, one row) with equal steps in all items of the batch");
    }
    const bool masks_fit = spec.result == RowResult::choice && !chain && std::ssize(spec.masks) == spec.rows;
    if (!spec.masks.empty() && !masks_fit) {
      throw Error("batch.masks", text("item ", i, " has ", spec.masks.size(), " masks for ", spec.rows, " rows"),
                  "Give masks with RowResult::choice without a chain only, one per row");
    }
    const std::span<const int> parents = batch.parents(item);
    const std::span<const Token> tokens = batch.tokens(item);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (tokens[t] < 0 || tokens[t] >= info.vocab) {
        throw Error(
            "batch.token-out-of-range",
            text("token id ", tokens[t], " is outside the vocabulary 0..", info.vocab - 1, " of '", info.name, "'"),
            "Encode the text with this model's own tokenizer");
      }
      if (parents[t] < -1 || parents[t] >= static_cast<int>(t)) {
        throw Error("batch.bad-parent", text("token ", t, " of item ", i, " has the invalid parent ", parents[t]),
                    "Give one parent per token: the index of an earlier token of this item, or -1");
      }
      if (parents[t] != static_cast<int>(t) - 1) {
        throw Error("batch.tree", text("token ", t, " of item ", i, " branches after token ", parents[t]),
                    "Token trees are not supported: fork the sequence for each branch");
      }
    }
  }
}

/// Produces the steps of a batch in order. Sequences keep their tokens until commit(). After a failed forward, pages
/// either match the sequence's tokens or are not counted as filled.
class Planner {
 public:
  /// The batch must have passed check_batch().
  Planner(Batch& batch, const PlanLimits& limits) : batch_(&batch), limits_(limits) {
    for (const Batch::Item& item : batch.items()) {
      works_.push_back(work_of(item));
      works_.back().state->reserve(item.count + static_cast<std::size_t>(item.spec.chain));  // reserved for commit()
    }
  }

  ~Planner() {
    for (Work& work : works_) work.state->drop_behind(std::min(work.state->length(), work.state->filled));
  }
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  /// Returns true if the device can run the batch's chains of steps without the host.
  static bool can_chain(const Batch& batch, const PlanLimits& limits) {
    const auto format_of = [](const Batch::Item& item) { return paged(*item.sequence).pool.layout().format(); };
    const std::span<const Batch::Item> items = batch.items();
    return items.size() <= static_cast<std::size_t>(limits.max_chained_rows) &&
           std::all_of(items.begin(), items.end(),
                       [&](const auto& item) {  // a plan has no states for later steps
                         return format_of(item) == format_of(items.front()) && !paged(*item.sequence).recurs();
                       }) &&
           limits.original_context ==
               std::numeric_limits<int>::max();  // otherwise the next token may need the other factors
  }

  /// Returns the next step, or null at the end. Throws cache.full.
  const StepPlan* next() {
    clear();
    want_ = RowResult::nothing;
    layout_ = nullptr;
    int left = 0;
    for (Work& work : works_) {
      while (!work.done() && !work.entered) enter(work);
      if (work.done()) continue;
      left += work.segments[work.now].last - work.position;
      // A step computes one kind of result, for pages of one format.
      const bool asks = want_ == RowResult::nothing && work.item->spec.result != RowResult::nothing;
      if (layout_ == nullptr || asks) layout_ = &work.state->pool.layout();
      if (asks) want_ = work.item->spec.result;
    }
    // A chain is the last step; rows that exceed its limit run before it.
    const int chain = works_.empty() ? 1 : works_.front().item->spec.chain;
    const bool chained = chain > 1 && left <= limits_.max_chained_rows;
    if (chained) steps_ = chain;
    for (std::size_t i = 0; i < works_.size(); ++i) add(i, chain > 1 && !chained ? 1 : 0);
    if (rows_.empty()) return nullptr;
    plan_ = {.rows = rows_,
             .sequences = sequences_,
             .pages = pages_,
             .states = states_,
             .outputs = outputs_,
             .draws = draws_,
             .steps = steps_,
             .format = layout_->format(),
             .result = want_,
             .masks = masked_ ? std::span<const TokenMask* const>(masks_) : std::span<const TokenMask* const>(),
             .before_masks = &batch_->before_masks()};
    return &plan_;
  }

  /// The page layout of the current step.
  const KvLayout& layout() const { return *layout_; }
  /// Indices of the current step's results in the batch.
  std::span<const std::size_t> answers() const { return answers_; }
  /// Returns true if the results are contiguous.
  bool answers_in_order() const {
    for (std::size_t i = 1; i < answers_.size(); ++i) {
      if (answers_[i] != answers_.front() + i) return false;
    }
    return true;
  }
  /// Records that the current step was executed.
  void taken() {
    for (const Part& part : parts_) {
      Work& work = works_[part.work];
      PagedSequence& state = *work.state;
      state.filled = part.last;
      state.states_computed(part.last, work.answered_from);
      // Tokens after the first result row may be a draft that is truncated later.
      state.publish(std::min(part.last, work.answered_from + 1), [&](int i) { return token_at(work, i); });
      state.release_before_window(part.last);
    }
  }

  /// After all steps: appends the tokens to the sequences, including those that a chain chose.
  void commit() {
    for (Work& work : works_) {
      const std::span<const Token> tokens = batch_->tokens(*work.item);
      work.state->tokens.insert(work.state->tokens.end(), tokens.begin(), tokens.end());
      work.state->adopted += work.adopted;
      const ResultSpec& spec = work.item->spec;
      for (int step = 0; spec.result == RowResult::choice && step + 1 < spec.chain; ++step) {
        const Token token = batch_->choice_at(work.item->answer)[step];
        work.state->tokens.push_back(std::max(token, 0));  // as the device maps no_token
      }
    }
  }

 private:
  /// A run of positions rotated with one set of factors. It starts at its first position if the cached pages serve it,
  /// else at 0.
  struct Segment {
    int first = 0, last = 0;
    bool beyond = false;
  };

  /// Remaining work of one batch item.
  struct Work {
    const Batch::Item* item = nullptr;
    PagedSequence* state = nullptr;
    Segment segments[2] = {};
    int count = 0;     // number of segments
    int now = 0;       // index of the current segment
    int position = 0;  // next position to compute in it
    bool entered = false;
    int answered_from = 0;  // first position with a result
    int adopted = 0;        // positions

    bool done() const { return now == count; }
  };

  /// A sequence's rows in the current step.
  struct Part {
    std::size_t work;
    int last;
  };

  /// With LongRoPE, each row is computed as if its token were the last: short factors for all positions up to the
  /// original context, long factors beyond. A prompt longer than the original context uses the long factors from
  /// position 0, as in transformers.
  Work work_of(const Batch::Item& item) const {
    Work work{.item = &item, .state = &paged(*item.sequence)};
    const int length = work.state->length(), count = static_cast<int>(item.count), end = length + count;
    const int unanswered = item.spec.result == RowResult::nothing ? count : count - item.spec.rows;
    work.answered_from = length + unanswered;
    const bool all_beyond = length == 0 && count > limits_.original_context;
    const int within = all_beyond ? 0 : std::clamp(limits_.original_context - length, 0, count);
    const auto segment = [&](int first, int last, bool beyond) {
      if (first < last) work.segments[work.count++] = {first, last, beyond};
    };
    if (within == count || within > unanswered) segment(length, length + within, false);
    if (within < count) segment(length + within, end, true);
    return work;
  }

  Token token_at(const Work& work, int position) const {
    const std::vector<Token>& known = work.state->tokens;
    const auto i = static_cast<std::size_t>(position);
    return i < known.size() ? known[i] : batch_->tokens(*work.item)[i - known.size()];
  }

  /// Restarts at 0, or at a kept state, if the cached pages cannot serve the segment, then skips the prefix cached by
  /// other sequences.
  void enter(Work& work) const {
    const Segment& segment = work.segments[work.now];
    PagedSequence& state = *work.state;
    work.position = work.now == 0 ? state.resumable(segment.first, segment.beyond) : 0;
    work.entered = true;
    if (work.position < segment.first || work.position == 0) state.drop_behind(work.position);
    if (work.position == 0) state.beyond = segment.beyond;
    const int unanswered = std::min(segment.last, std::max(segment.first, work.answered_from)), from = work.position;
    work.position = state.adopt(
        from, unanswered, [&](int i) { return token_at(work, i); }, true);
    work.adopted += work.position - from;
    if (work.position == segment.last) leave(work);
  }

  static void leave(Work& work) {
    ++work.now;
    work.entered = false;
  }

  void clear() {
    rows_.clear();
    sequences_.clear();
    pages_.clear();
    states_.clear();
    outputs_.clear();
    draws_.clear();
    masks_.clear();
    masked_ = false;
    answers_.clear();
    parts_.clear();
    steps_ = 1;
  }

  /// Adds as many rows of an item as fit, except its last `kept` tokens.
  void add(std::size_t index, int kept) {
    Work& work = works_[index];
    const ResultSpec& spec = work.item->spec;
    if (work.done() || (spec.result != RowResult::nothing && spec.result != want_)) return;
    if (work.state->pool.layout().format() != layout_->format()) return;
    const Segment& segment = work.segments[work.now];
    const int rows_left = limits_.max_rows - static_cast<int>(rows_.size());
    const int first = work.position, last = std::min(segment.last - kept, first + rows_left);
    if (last <= first) return;

    PagedSequence& state = *work.state;
    state.make_writable(first, last + steps_ - 1);
    const auto first_state = static_cast<int>(states_.size());
    if (state.recurs()) state.plan_states(first, last, work.answered_from, states_);
    const PlanSequence sequence{.first_row = static_cast<int>(rows_.size()),
                                .rows = last - first,
                                .rope = segment.beyond ? 1 : 0,
                                .first_page = static_cast<int>(pages_.size()),
                                .pages = add_pages(state),
                                .first_state = first_state,
                                .adapter = state.adapter.get()};
    for (int position = first; position < last; ++position) {
      const auto row = static_cast<int>(rows_.size());
      rows_.push_back({.token = token_at(work, position),
                       .position = position,
                       .sequence = static_cast<int>(sequences_.size()),
                       .parent = position == first ? -1 : row - 1});
      if (position < std::max(segment.first, work.answered_from)) continue;
      outputs_.push_back(row);
      const auto answer = static_cast<std::size_t>(position - work.answered_from);
      answers_.push_back(work.item->answer + answer);
      if (want_ != RowResult::choice) continue;
      draws_.push_back(spec.draw);
      masks_.push_back(spec.masks.empty() ? nullptr : &spec.masks[answer]);
      masked_ = masked_ || !spec.masks.empty();
    }
    sequences_.push_back(sequence);
    parts_.push_back({index, last + steps_ - 1});
    work.position = last;
    if (last == segment.last) leave(work);
  }

  int add_pages(const PagedSequence& state) {
    std::size_t most = 0;
    const std::span tables(state.tables.data(), state.tables.size() - (state.recurs() ? 1 : 0));
    for (const auto& table : tables) most = std::max(most, table.size());
    for (const auto& table : tables) {
      for (const KvPageRef& page : table) pages_.push_back(page == nullptr ? nullptr : page->memory);
      pages_.resize(pages_.size() + most - table.size(), nullptr);
    }
    return static_cast<int>(most);
  }

  Batch* batch_;
  PlanLimits limits_;
  std::vector<Work> works_;
  StepPlan plan_;
  RowResult want_ = RowResult::nothing;
  const KvLayout* layout_ = nullptr;
  int steps_ = 1;
  std::vector<PlanRow> rows_;
  std::vector<PlanSequence> sequences_;
  std::vector<std::byte*> pages_;
  std::vector<std::byte*> states_;
  std::vector<int> outputs_;
  std::vector<Draw> draws_;
  std::vector<const TokenMask*> masks_;  // [draws]
  bool masked_ = false;                  // any of them is set
  std::vector<std::size_t> answers_;     // [outputs]
  std::vector<Part> parts_;
};

/// Runs a chain with one forward per step, for devices without chains.
template <LanguageModel M>
void forward_one_by_one(const M& model, Batch& batch) {
  std::vector<int> lengths;
  for (const Batch::Item& item : batch.items()) {
    lengths.push_back(item.sequence->length());
    std::fill_n(batch.choice_at(item.answer), item.spec.chain, no_token);
  }
  try {
    Batch one;
    std::vector<const Batch::Item*> going;
    for (int step = 0; step < batch.items().front().spec.chain; ++step) {
      one.clear();
      going.clear();
      for (const Batch::Item& item : batch.items()) {
        const Token* const last = batch.choice_at(item.answer) + step - 1;
        if (step > 0 && *last == no_token) continue;
        ResultSpec spec = item.spec;
        spec.chain = 1;
        one.add(*item.sequence, step == 0 ? batch.tokens(item) : std::span(last, 1), spec);
        going.push_back(&item);
      }
      model.forward(one);
      for (std::size_t i = 0; i < going.size(); ++i)
        batch.choice_at(going[i]->answer)[step] = one.choices(static_cast<int>(i)).front();
    }
  } catch (...) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      Sequence& sequence = *batch.items()[i].sequence;
      if (sequence.length() > lengths[i]) sequence.truncate(lengths[i]);
    }
    throw;
  }
}

}}}
