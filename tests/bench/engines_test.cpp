// Comparison of engines: speeds from the rows, and the first difference of greedy texts.
#include "bench/command/speculative/engines.hpp"

#include <catch2/catch.hpp>

namespace {

using namespace slm::bench::speculative;
using slm::Json;

Row row(const std::string& engine, const std::string& sampling, const std::string& kind, const std::string& task,
        std::vector<slm::Token> ids, double total, int repeat = 0) {
  Row made;
  made.key = {engine, "published", sampling, kind, kind == "plain" ? "0" : "heuristic", repeat, task};
  made.new_ids = std::move(ids);
  made.new_tokens = static_cast<std::int64_t>(made.new_ids.size());
  made.total = total;
  made.prompt = 1;
  if (kind == "speculative") made.drafted = 4, made.accepted = made.rounds = made.new_tokens / 2;
  return made;
}

const Json described = {{"slm", {{"version", "1"}, {"threads", 2}, {"dtype", "BF16"}}},
                        {"other", {{"version", "9"}, {"threads", 2}, {"dtype", "BF16"}, {"notes", {"odd"}}}},
                        {"plainly", {{"version", "3"}, {"threads", 2}, {"dtype", "BF16"}, {"speculation", nullptr}}}};

const std::vector<Row> rows = {row("slm", "greedy", "plain", "a", {1, 2, 3, 4}, 3),
                               row("slm", "greedy", "speculative", "a", {1, 2, 3, 4}, 2),
                               row("other", "greedy", "plain", "a", {1, 2, 3, 4}, 5),
                               row("other", "greedy", "speculative", "a", {1, 2, 3, 4}, 3),
                               row("plainly", "greedy", "plain", "a", {1, 2, 9, 4}, 2),
                               row("slm", "greedy", "plain", "b", {5, 6}, 2),
                               row("slm", "greedy", "speculative", "b", {5, 6}, 1.5),
                               row("other", "greedy", "plain", "b", {7, 6}, 2),
                               row("other", "greedy", "speculative", "b", {7, 6}, 2),
                               row("plainly", "greedy", "plain", "b", {5}, 2),
                               row("other", "sampled", "plain", "a", {9, 9}, 2),
                               row("slm", "greedy", "plain", "a", {1, 2, 3, 4}, 5, 1),
                               row("slm", "greedy", "speculative", "a", {1, 2, 3, 4}, 2, 1),
                               row("slm", "greedy", "plain", "a", {1, 2, 3, 4}, 4, 2),
                               row("slm", "greedy", "speculative", "a", {1, 2, 3, 4}, 2, 2),
                               row("slm", "greedy", "plain", "c", {8, 8, 8}, 2),
                               row("slm", "greedy", "speculative", "c", {8, 8, 8}, 1.5),
                               row("plainly", "greedy", "plain", "c", {8, 8, 1}, 2)};

TEST_CASE("an engine's speed excludes the prompt, and its speedup is the median of the repeats") {
  const Json engines = engines_of(rows, described);
  REQUIRE(engines.size() == 4);
  const Json& ours = engines[0];
  CHECK(ours["engine"] == "slm");
  CHECK(ours["decode_tokens_per_second"]["plain"] == 17.0 / (2 + 1 + 4 + 3 + 1));
  CHECK(ours["decode_tokens_per_second"]["speculative"] == 17.0 / (1 + 0.5 + 1 + 1 + 0.5));
  CHECK(ours["decode_speedup"]["median"].get<double>() == Approx(3));
  CHECK(ours["decode_speedup"]["least"].get<double>() == Approx(2));
  CHECK(ours["decode_speedup"]["most"].get<double>() == Approx(4));
  CHECK(ours["agreement"].is_null());
  const Json& other = engines[1];
  CHECK(other["version"] == "9");
  CHECK(other["decode_tokens_per_second"]["plain"] == 6.0 / 5);
  CHECK(other["tokens_per_target_step"] == 2.0);
  CHECK(other["acceptance"] == 3.0 / 8);
  CHECK(engines[3]["sampling"] == "sampled");
  CHECK(engines[3]["agreement"].is_null());
}

TEST_CASE("an engine without speculation is listed") {
  const Json plainly = engines_of(rows, described)[2];
  CHECK(plainly["decode_tokens_per_second"]["plain"] == 8.0 / 3);
  CHECK(plainly["decode_tokens_per_second"]["speculative"].is_null());
  CHECK(plainly["decode_speedup"].is_null());
  CHECK(engines_text(Json::array({plainly})).find("speculation: none") != std::string::npos);
}

TEST_CASE("greedy texts are compared token by token") {
  const Json found = agreement_of(rows);
  CHECK(found["other"] ==
        Json({{"compared", 2}, {"equal", 1}, {"parted_after", {{"median", 0.0}, {"least", 0.0}, {"most", 0.0}}}}));
  CHECK(found["plainly"]["equal"] == 0);
  CHECK(found["plainly"]["parted_after"] == Json({{"median", 2.0}, {"least", 1.0}, {"most", 2.0}}));
  const std::string shown = engines_text(engines_of(rows, described));
  CHECK(shown.find("1 of 2; others part after 0 tokens |") != std::string::npos);
  CHECK(shown.find("0 of 3; others part after 2 tokens (1 to 2) |") != std::string::npos);
}

TEST_CASE("a run without other engines does not mention them") {
  const Json alone = engines_of(rows, {{"slm", Json::object()}});
  CHECK(alone.empty());
  CHECK(engines_text(alone).empty());
}

}  // namespace
