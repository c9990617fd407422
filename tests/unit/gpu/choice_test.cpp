// Tokens chosen on emulated lanes are the host's tokens.
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_choice.hpp"

using namespace slm;
using namespace slm::testing;
using Wide = backend::Lanes64::Runtime;
using Narrow = backend::Lanes32::Runtime;

TEST_CASE("32 lanes choose the host's tokens") { check_choices<Narrow>(100, 2); }
TEST_CASE("64 lanes choose the host's tokens") { check_choices<Wide>(50, 2); }
TEST_CASE("32 and 64 lanes choose the host's tokens in many cases", "[long]") {
  check_choices<Narrow>(400, 2);
  check_choices<Wide>(200, 2);
}

TEST_CASE("32 lanes choose the host's tokens under masks") { check_masked_choices<Narrow>(75); }
TEST_CASE("64 lanes choose the host's tokens under masks") { check_masked_choices<Wide>(40); }
TEST_CASE("32 and 64 lanes choose the host's tokens under many masks", "[long]") {
  check_masked_choices<Narrow>(300);
  check_masked_choices<Wide>(150);
}

TEST_CASE("vocabularies of 50304 and 50432 ids, without ids beyond the target's") {
  check_choice_of<Narrow>(50304, 0);
  check_choice_of<Narrow>(50432, 1);
}

TEST_CASE("a race does not read the unwritten cut of a row without a choice") {
  const std::vector<float> logits{1, 2, 3, 4};
  const std::vector<Draw> draws(2, draw_of({.top_p = 0.9f, .seed = 5}, 2));
  const std::vector<gpu::StepRow> rows{{0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0}};
  std::vector<int> peaks{1, no_token};
  const std::vector<std::uint64_t> cuts{0};  // ends before the second row
  std::vector<int> tokens(2, -7), tickets(2, 0);
  std::vector<gpu::Ranked> partial(2 * gpu::Race::most_blocks);
  Narrow runtime;
  auto stream = runtime.make_stream();
  const auto launch = [&] {
    runtime.launch<gpu::Race>(
        {.logits = {logits.data(), 4},
         .outputs = {.rows = {rows.data(), 2}, .outputs = {}, .draws = {draws.data(), 2}, .next = {}},
         .peaks = {peaks.data(), 2},
         .cuts = {cuts.data(), 1},
         .tokens = {tokens.data(), 2},
         .partial = {partial.data(), static_cast<std::int64_t>(partial.size())},
         .tickets = {tickets.data(), 2},
         .width = 2,
         .rows = 2},
        stream);
  };
  CHECK_NOTHROW(launch());
  CHECK(tokens[0] != no_token);
  CHECK(tokens[1] == no_token);
}
