// A run of slm bench speculative with toy models: complete, stopped and resumed, with a failing device, and with
// damaged
// folders.
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "bench/command/speculative/measure.hpp"
#include "bench/command/speculative/summary.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

namespace {

namespace fs = std::filesystem;
using namespace slm::bench::speculative;
using slm::AnyModel;
using slm::Json;
using slm::testing::error_id;
using slm::testing::ScriptedModel;
using slm::testing::TemporaryFolder;
using slm::testing::ToyModel;
using slm::testing::ToyOptions;

/// A model whose device fails after a number of steps.
struct Vanishing : slm::testing::Watched<ToyModel> {
  Vanishing(ToyOptions options, std::int64_t steps)
      : Watched(ToyModel{std::move(options)}, [left = std::make_shared<std::int64_t>(steps)](const slm::Batch&) {
          if ((*left)-- <= 0) throw slm::Error("toy.gone", "the device does not answer", "Plug it in");
        }) {}
};

ToyOptions target_options() { return {.vocab = 64, .context = 256, .seed = 5}; }
ToyOptions draft_options() { return {.vocab = 64, .context = 256, .seed = 5, .other_seed = 9, .other_share = 0.3}; }

std::vector<Prompt> some_prompts() {
  return {{"t/0", {1, 2, 3}, "one"}, {"t/1", {4, 5, 6, 7}, "two"}, {"t/2", {8, 9}, "three"}};
}

std::vector<Setting> some_settings() {
  return {{"published", "greedy", {"heuristic"}, {}, 3},
          {"published", "sampled", {"heuristic"}, {}, 3},
          {"best", "sampled", {"adaptive"}, function_ends(), 3},
          {"sweep", "greedy", {"1", "4"}, {}, 2}};
}
constexpr std::size_t all_rows = 3 * 2 + 3 * 2 + 3 * 2 + 2 * 3;

const slm::Tokenizer& tokenizer() {
  static const auto loaded = slm::Tokenizer::from(slm::testing::demo_pair("target"));
  return loaded;
}

const Json description = {{"target", {{"weights", "a"}, {"config", "b"}}}, {"repeats", 1}, {"settings", {1, 2}}};

const std::function<bool()> never = [] { return false; };
const std::function<void(std::size_t)> quietly = [](std::size_t) {};

/// Measures the missing rows.
template <class Target = ToyModel, class Draft = ToyModel>
void measure(const fs::path& path, const std::function<bool()>& stopped = never,
             Target target = Target(target_options()), Draft draft = Draft(draft_options())) {
  AnyModel one(std::move(target)), other(std::move(draft));
  RunFolder folder(path, description, Json::object());
  Measurement measurement(one, other, tokenizer(), some_prompts(), some_settings(), 1, 40);
  REQUIRE(measurement.rows() == all_rows);
  measurement.run(folder, quietly, stopped);
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<Key, std::vector<slm::Token>> texts(const fs::path& path) {
  std::map<Key, std::vector<slm::Token>> found;
  const RunFolder run(path, description, Json::object());
  for (const Row& row : run.rows()) found[row.key] = row.new_ids;
  return found;
}

TEST_CASE("a run measures every task plainly and speculatively, with equal texts") {
  const TemporaryFolder folder;
  measure(folder.path() / "run");
  const RunFolder run(folder.path() / "run", description, Json::object());
  CHECK(run.rows().size() == all_rows);
  const Json summary = summary_of(run.rows());
  CHECK(summary["configurations"].size() == 5);
  for (const Json& found : summary["configurations"]) {
    CHECK(found["identical"]["compared"] == found["identical"]["equal"]);
    CHECK(found["predicted_speedup"].is_number());
    CHECK(found["tokens_per_target_step"].get<double>() >= 1);
  }
  CHECK(summary["costs"]["probes"] == 3);
  CHECK(run.row({"slm", "published", "greedy", "plain", "0", 0, "t/1"}).new_tokens == 40);
}

TEST_CASE("the program of a correct answer keeps its indentation, for any space convention of the tokenizer") {
  const std::string question = "def add(a, b):\n    \"\"\" Adds. \"\"\"\n", answer = "    return a + b\n";
  for (const char* name : {"gpt2", "llama2_legacy", "llama2_metaspace", "phi3"}) {
    CAPTURE(name);
    const auto words = slm::Tokenizer::from(slm::testing::fixture("tokenizers/" + std::string{name} + ".json"));
    const std::vector<slm::Token> prompt = words.encode(question), script = words.encode(question + answer);
    REQUIRE(std::equal(prompt.begin(), prompt.end(), script.begin()));
    const int new_tokens = static_cast<int>(script.size() - prompt.size());
    AnyModel target(ScriptedModel(script, words.vocab())), draft(ScriptedModel(script, words.vocab()));
    const TemporaryFolder folder;
    RunFolder run(folder.path(), description, Json::object());
    Measurement measurement(target, draft, words, {{"t", prompt, question}},
                            {{"best", "greedy", {"4"}, function_ends(), 1}}, 1, new_tokens);
    measurement.run(run, quietly, never);
    REQUIRE(run.rows().size() == 2);
    for (const Row& row : run.rows()) CHECK(row.completion == answer);
  }
}

TEST_CASE("a stopped run continues") {
  const TemporaryFolder folder;
  measure(folder.path() / "whole");
  std::size_t asked = 0;
  measure(folder.path() / "parts", [&asked] { return ++asked > 300; });
  const std::string before = content(folder.path() / "parts/results.jsonl");
  const auto rows_before = texts(folder.path() / "parts").size();
  REQUIRE(rows_before > 0);
  REQUIRE(rows_before < all_rows);
  measure(folder.path() / "parts");
  CHECK(content(folder.path() / "parts/results.jsonl").starts_with(before));
  CHECK(texts(folder.path() / "parts") == texts(folder.path() / "whole"));
  // Complete: nothing is measured again.
  const std::string after = content(folder.path() / "parts/results.jsonl");
  measure(folder.path() / "parts");
  CHECK(content(folder.path() / "parts/results.jsonl") == after);
}

TEST_CASE("results before a device failure are kept") {
  const TemporaryFolder folder;
  CHECK(error_id([&] { measure(folder.path(), never, Vanishing(target_options(), 500)); }) == "toy.gone");
  const auto kept = texts(folder.path());
  CHECK(kept.size() > 0);
  CHECK(kept.size() < all_rows);
  measure(folder.path());
  CHECK(texts(folder.path()).size() == all_rows);
}

TEST_CASE("a failing draft is not a measurement") {
  const TemporaryFolder folder;
  CHECK(error_id([&] { measure(folder.path(), never, ToyModel(target_options()), Vanishing(draft_options(), 500)); }) ==
        "bench.draft-failed");
  const RunFolder run(folder.path(), description, Json::object());
  for (const Row& row : run.rows()) {
    CHECK((row.key.kind == "plain" || row.key.draft_length == "adaptive" || row.drafted > 0));
  }
}

TEST_CASE("a truncated row is measured again") {
  const TemporaryFolder folder;
  measure(folder.path());
  const std::string whole = content(folder.path() / "results.jsonl");
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (const std::size_t size : {last + 1, last + 30, whole.size() - 1}) {
    folder.write("results.jsonl", whole.substr(0, size));
    CHECK(texts(folder.path()).size() == all_rows - 1);
    CHECK(content(folder.path() / "results.jsonl") == whole.substr(0, last));
    measure(folder.path());
    CHECK(texts(folder.path()).size() == all_rows);
  }
  folder.write("results.jsonl", whole + "\0\0\0 rubbish\n");
  CHECK(texts(folder.path()).size() == all_rows);
}

TEST_CASE("a broken row before the last is an error with its number") {
  const TemporaryFolder folder;
  measure(folder.path());
  std::string lines = content(folder.path() / "results.jsonl");
  lines.insert(lines.find('\n') + 3, "#");
  folder.write("results.jsonl", lines);
  CHECK(error_id([&] { texts(folder.path()); }) == "bench.broken-results");
  CHECK_THROWS_WITH(texts(folder.path()), Catch::Contains("line 2:"));
  CHECK(content(folder.path() / "results.jsonl") == lines);  // nothing is lost
}

TEST_CASE("a measurement that occurs twice is an error") {
  const TemporaryFolder folder;
  measure(folder.path());
  const std::string lines = content(folder.path() / "results.jsonl");
  folder.write("results.jsonl", lines.substr(0, lines.find('\n') + 1) + lines);
  CHECK(error_id([&] { texts(folder.path()); }) == "bench.broken-results");
}

TEST_CASE("a folder of another run is rejected with the first difference") {
  const TemporaryFolder folder;
  measure(folder.path());
  const auto with = [&](const Json& run) { RunFolder(folder.path(), run, Json::object()); };
  Json other = description;
  other["target"]["weights"] = "c";
  CHECK(error_id([&] { with(other); }) == "bench.other-run");
  CHECK_THROWS_WITH(with(other), Catch::Contains("'target.weights' is \"a\", this run has \"c\""));
  other = description;
  other["settings"][1] = 3;
  CHECK_THROWS_WITH(with(other), Catch::Contains("'settings[1]'"));
  other = description;
  other.erase("repeats");
  CHECK_THROWS_WITH(with(other), Catch::Contains("'repeats' is 1, this run has null"));
  folder.write("manifest.json", "[]");
  CHECK(error_id([&] { with(description); }) == "json.not-an-object");
  folder.write("manifest.json", "{}");
  CHECK(error_id([&] { with(description); }) == "bench.other-run");
}

TEST_CASE("a folder with other files is rejected; an unfinished start is not") {
  const TemporaryFolder folder;
  folder.write("manifest.json.partial", "{");
  CHECK(texts(folder.path()).empty());
  const TemporaryFolder other;
  other.write("thesis.tex", "");
  CHECK(error_id([&] { texts(other.path()); }) == "bench.not-a-run");
  CHECK(error_id([&] { texts(other.path() / "thesis.tex"); }) == "io.unwritable");
}

TEST_CASE("two runs cannot write to one folder") {
  const TemporaryFolder folder;
  const RunFolder first(folder.path(), description, Json::object());
  CHECK(error_id([&] { texts(folder.path()); }) == "bench.in-use");
}

TEST_CASE("rows are read as written, and damaged ones are rejected") {
  const TemporaryFolder folder;
  measure(folder.path());
  const RunFolder run(folder.path(), description, Json::object());
  for (const Row& row : run.rows()) CHECK(to_json(row_of(to_json(row))) == to_json(row));

  const Json sound = to_json(run.row({"slm", "published", "greedy", "plain", "0", 0, "t/0"}));
  const Json rubbish[] = {nullptr,
                          -1,
                          1e300,
                          1.5,
                          "x",
                          Json::array({-1}),
                          Json::array({"x"}),
                          Json::object(),
                          Json::array({Json::array({1, 2, 3})}),
                          std::uint64_t(-1)};
  for (const auto& field : sound.items()) {
    for (const Json& value : rubbish) {
      Json json = sound;
      json[field.key()] = value;
      const std::string id = error_id([&] { row_of(json); });
      const bool may_pass = value.is_null() || value.is_string() || value.is_object();
      CHECK((id == "bench.bad-row" || (may_pass && id == "no error")));
    }
  }
  for (const char* needed : {"engine", "kind", "task_id", "seconds", "new_tokens", "new_ids", "completion"}) {
    Json json = sound;
    json.erase(needed);
    CHECK((error_id([&] { row_of(json); }) == "bench.bad-row"));
  }
  for (const Json& value : rubbish) CHECK(error_id([&] { row_of(value); }) == "bench.bad-row");
  Json probed = sound;
  probed["probe"]["target"] = 5;
  CHECK(error_id([&] { row_of(probed); }) == "bench.bad-row");
}

TEST_CASE("other engines omit fields that they cannot determine") {
  const Json json = {{"engine", "llama.cpp"},
                     {"setup", "published"},
                     {"sampling", "greedy"},
                     {"kind", "speculative"},
                     {"draft_length", "heuristic"},
                     {"repeat", 0},
                     {"task_id", "t"},
                     {"prompt_tokens", 3},
                     {"new_tokens", 2},
                     {"new_ids", {1, 2}},
                     {"completion", "x"},
                     {"seconds", {{"total", 0.5}}},
                     {"drafted", 4},
                     {"accepted", 1},
                     {"rounds", 1}};
  CHECK(row_of(json).accepted == 1);
  Json without = json;
  without.erase("drafted");
  CHECK(error_id([&] { row_of(without); }) == "bench.bad-row");
}

}  // namespace
