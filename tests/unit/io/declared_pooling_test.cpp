// The files' declarations of a model's embeddings.
#include "slm/io/declared_pooling.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/errors.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/temporary.hpp"
#include "tools/cli/pooling.hpp"

using slm::declared_pooling;
using slm::Json;
using slm::testing::error_id;
using slm::testing::GgufBuilder;

namespace {

Json flags(const std::string& chosen) {
  Json json = {{"word_embedding_dimension", 8}};
  for (const char* name : {"cls_token", "mean_tokens", "max_tokens", "lasttoken"}) {
    json[std::string{"pooling_mode_"} + name] = chosen == name;
  }
  return json;
}

Json modules(std::initializer_list<const char*> types) {
  Json list = Json::array();
  for (const std::string type : types) {
    list.push_back({{"idx", list.size()},
                    {"path", type == "Pooling" ? "1_Pooling" : ""},
                    {"type", "sentence_transformers.models." + type}});
  }
  return list;
}

struct Model {
  slm::testing::TemporaryFolder scratch;

  std::filesystem::path with(const Json& pooling, const Json& list = nullptr, const Json& settings = nullptr) const {
    std::filesystem::create_directories(scratch.path() / "1_Pooling");
    std::ofstream(scratch.path() / "1_Pooling" / "config.json") << pooling.dump();
    const auto write = [&](const char* name, const Json& json) {
      std::filesystem::remove(scratch.path() / name);
      if (!json.is_null()) std::ofstream(scratch.path() / name) << json.dump();
    };
    write("modules.json", list);
    write("config_sentence_transformers.json", settings);
    return scratch.path();
  }
};

std::string refusal(const std::filesystem::path& model) {
  return error_id([&] { cli::choose_pooling(model); });
}

}  // namespace

TEST_CASE("a folder declares its pooling, and the declaration decides") {
  const Model model;
  CHECK_FALSE(declared_pooling(model.scratch.path()));
  CHECK(cli::choose_pooling(model.scratch.path()).pooling == slm::Pooling::mean);

  CHECK(cli::choose_pooling(model.with(flags("lasttoken"))).pooling == slm::Pooling::last);
  CHECK(cli::choose_pooling(model.with(flags("mean_tokens"))).pooling == slm::Pooling::mean);
  CHECK(cli::choose_pooling(model.with({{"pooling_mode", "lasttoken"}})).pooling == slm::Pooling::last);
  CHECK(cli::choose_pooling(model.with(Json::object())).pooling == slm::Pooling::mean);
  CHECK(declared_pooling(model.with({{"pooling_mode_lasttoken", true}}))->pooling == "mean+last");
  for (const Json& other :
       {flags("cls_token"), flags("max_tokens"), flags(""), Json{{"pooling_mode_lasttoken", true}}}) {
    CHECK(refusal(model.with(other)) == "cli.unsupported-pooling");
  }

  const auto normalized =
      cli::choose_pooling(model.with(flags("lasttoken"), modules({"Transformer", "Pooling", "Normalize"})));
  CHECK(normalized.pooling == slm::Pooling::last);
  CHECK(normalized.normalize);
  CHECK_FALSE(cli::choose_pooling(model.with(flags("lasttoken"), modules({"Transformer", "Pooling"}))).normalize);
  CHECK(refusal(model.with(flags("lasttoken"), modules({"Transformer", "Pooling", "Dense"}))) ==
        "cli.unsupported-pooling");
  CHECK(refusal(model.with(flags("lasttoken"), nullptr, {{"default_prompt_name", "query"}})) ==
        "cli.unsupported-pooling");
  CHECK(refusal(model.with(flags("lasttoken"), nullptr, {{"default_prompt_name", nullptr}})) == "no error");
}

TEST_CASE("malformed declarations are errors") {
  const Model model;
  CHECK(refusal(model.with({{"pooling_mode_lasttoken", 1}})) == "json.bad-field");
  CHECK(refusal(model.with(flags("lasttoken"), Json::object())) == "json.bad-field");
  CHECK(refusal(model.with(flags("lasttoken"), Json::array({7}))) == "json.bad-field");
  for (const char* path : {"../elsewhere", "/elsewhere"}) {
    CHECK(refusal(model.with(flags("lasttoken"), Json::array({{{"type", "x.Pooling"}, {"path", path}}}))) ==
          "json.bad-field");
  }
}

TEST_CASE("a GGUF file declares its pooling") {
  const slm::testing::TemporaryFolder folder;
  const auto file = [&](std::uint32_t type) {
    return folder.write("m.gguf",
                        GgufBuilder().string("general.architecture", "qwen2").u32("qwen2.pooling_type", type).build());
  };
  CHECK(cli::choose_pooling(file(1)).pooling == slm::Pooling::mean);
  CHECK(cli::choose_pooling(file(3)).pooling == slm::Pooling::last);
  for (const std::uint32_t other : {0u, 2u, 4u}) CHECK(refusal(file(other)) == "cli.unsupported-pooling");
  CHECK(refusal(file(9)) == "gguf.bad-value");
  CHECK_FALSE(declared_pooling(folder.write("n.gguf", GgufBuilder().string("general.architecture", "qwen2").build())));
}
