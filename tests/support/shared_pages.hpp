// A text with a prefix that others may have computed, for tests of shared pages.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/kv_memory.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// A text and the logits after each of its tokens.
struct Text {
  std::vector<Token> tokens;
  std::vector<float> expected;

  Text(const AnyModel& model, std::vector<Token> all) : tokens(std::move(all)) {
    Sequence sequence = model.sequence();
    Batch batch;
    batch.add(sequence, tokens, {.result = RowResult::logits, .rows = static_cast<int>(tokens.size())});
    model.forward(batch);
    const auto rows = batch.logits(0);
    expected.assign(rows.data, rows.data + rows.size());
  }

  bool gives(int row, const float* found) const {
    const std::size_t width = expected.size() / tokens.size();
    return std::memcmp(found, expected.data() + static_cast<std::size_t>(row) * width, width * sizeof(float)) == 0;
  }
};

/// One model, one of its texts and a sharing pool.
template <class B = backend::Cpu>
struct SharedPrefix {
  explicit SharedPrefix(const char* name, int length = 200, std::size_t pages = 0)
      : model(load(fixture(text("models/", name)), B{})),
        whole(model, some_text(1, length, model.info().vocab)),
        page(model.pool().bytes_of(1)),
        pool(std::make_shared<const detail::PagedCache>(PagePool(detail::paged(model.pool()).layout(),
                                                                 std::make_unique<KvMemoryOf<B>>(B{}),
                                                                 {.memory = pages * page, .share_prefixes = true}))) {}

  /// Appends tokens; returns whether the logits of the last one equal those of `text`.
  bool append(Sequence& sequence, const Text& text, int count) {
    Batch batch;
    const int at = sequence.length();
    batch.add(sequence, std::span(text.tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
              {.result = RowResult::logits});
    model.forward(batch);
    return text.gives(at + count - 1, batch.logits(0).data);
  }
  Text other(std::uint64_t seed) const {
    return Text(model, some_text(seed, static_cast<int>(whole.tokens.size()), model.info().vocab));
  }

  AnyModel model;
  Text whole;
  std::size_t page;
  KvPool pool;
};

}  // namespace slm::testing
