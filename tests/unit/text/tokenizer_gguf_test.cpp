// Tokenizers of GGUF metadata against the tokenizer.json that they were made of.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/io/gguf.hpp"
#include "slm/text/gguf_pre_tokenizers.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/gguf_tokenizer.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using Ids = std::vector<Token>;

namespace {

nlohmann::json fixture_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(fixture("tokenizers/" + name)));
}

Tokenizer read(const GgufBuilder& builder) {
  const std::string file = builder.build();
  return Tokenizer::parse(parse_gguf({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "a.gguf").fields);
}

/// The sentence of the Error that reading throws; empty when it is accepted.
std::string fault(const GgufBuilder& builder) {
  try {
    read(builder);
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("a.gguf"));
    return error.what();
  }
}

GgufVocabulary small_gpt2() {
  GgufVocabulary made;
  for (const char* token : {"a", "b", "ab", "abb"}) made.place(made.tokens.size(), token, 1);
  made.place(4, "<|end|>", 3);
  made.merges = {"a b", "ab b"};
  return made;
}

GgufVocabulary small_llama() {
  GgufVocabulary made;
  made.place(0, "<unk>", 2);
  made.place(1, "<s>", 3);
  made.place(2, "</s>", 3);
  float score = -1;
  for (const char* token : {"▁", "a", "b", "▁a", "ab", "▁ab"}) made.place(made.tokens.size(), token, 1, score--);
  made.place(9, "<mask>", 4, -1000);
  return made;
}

}  // namespace

TEST_CASE("a GGUF vocabulary encodes and decodes as the tokenizer.json that it was made of") {
  struct Kind {
    std::string model, pre;
    Token bos = -1;
  };
  const std::map<std::string, Kind> kinds{{"gpt2.json", {"gpt2", "gpt-2"}},
                                          {"neox.json", {"gpt2", "olmo"}},
                                          {"qwen2.json", {"gpt2", "qwen2"}},
                                          {"smollm.json", {"gpt2", "smollm"}},
                                          {"llama3.json", {"gpt2", "llama-bpe", 477}},
                                          {"llama2_legacy.json", {"llama", "default", 1}},
                                          {"phi3.json", {"llama", "default", 1}}};
  const nlohmann::json expected = fixture_json("expected.json");
  for (const auto& [file, kind] : kinds) {
    const bool phi3 = file == "phi3.json";
    GgufBuilder builder = gguf_vocabulary(fixture_json(file)).file(kind.model, kind.pre, phi3 ? "phi3" : "llama");
    if (kind.bos >= 0) builder.u32("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(kind.bos));
    const Tokenizer tokenizer = read(builder);
    const nlohmann::json& results = expected.at("files").at(file);
    REQUIRE(results.size() == 25);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string text = expected.at("strings")[i];
      if (phi3 && text.find("[MASK]") != text.npos) continue;  // takes white space to its left, which no key says
      const Ids ids = results[i].at("ids"), ids_special = results[i].at("ids_special");
      INFO(file << ": " << text);
      CHECK(tokenizer.encode(text, false) == ids);
      CHECK(tokenizer.encode(text) == ids_special);
      CHECK(tokenizer.decode(ids, false) == results[i].at("decoded").get<std::string>());
      CHECK(tokenizer.decode(ids_special) == results[i].at("decoded_skip").get<std::string>());
    }
  }
}

TEST_CASE("a GGUF file's own tokenizer is read by its path") {
  const Tokenizer tokenizer = Tokenizer::from(fixture("gguf/all-types.gguf"));
  const nlohmann::json expected = fixture_json("expected.json");
  const nlohmann::json& results = expected.at("files").at("smollm.json");
  for (std::size_t i = 0; i < results.size(); ++i) {
    CHECK(tokenizer.encode(expected.at("strings")[i].get<std::string>()) == results[i].at("ids_special").get<Ids>());
  }
  CHECK_THAT(error_id([] { Tokenizer::from(fixture("gguf/split-00001-of-00003.gguf")); }),
             Catch::Equals("tokenizer.not-found"));
}

TEST_CASE("GGUF flags put tokens around a text, and their absence means what the kind of tokenizer means") {
  const auto gpt2 = [](const char* pre) {
    return small_gpt2().file("gpt2", pre).u32("tokenizer.ggml.bos_token_id", 4);
  };
  const auto llama = [] { return small_llama().file("llama", "").u32("tokenizer.ggml.bos_token_id", 1); };
  const auto encode = [](const GgufBuilder& file) { return read(file).encode("ab"); };
  CHECK(encode(gpt2("gpt-2")) == Ids{2});
  CHECK(encode(gpt2("smaug-bpe")) == Ids{2});
  CHECK(encode(gpt2("llama-bpe")) == Ids{4, 2});
  CHECK(encode(gpt2("llama-bpe").boolean("tokenizer.ggml.add_bos_token", false)) == Ids{2});
  CHECK(encode(gpt2("gpt-2").boolean("tokenizer.ggml.add_bos_token", true)) == Ids{4, 2});
  CHECK(encode(llama()) == Ids{1, 8});
  CHECK(encode(llama().boolean("tokenizer.ggml.add_bos_token", false)) == Ids{8});
  CHECK(encode(llama().boolean("tokenizer.ggml.add_eos_token", true).u32("tokenizer.ggml.eos_token_id", 2)) ==
        Ids{1, 8, 2});
  CHECK_THAT(fault(llama().boolean("tokenizer.ggml.add_eos_token", true)),
             Catch::Contains("tokenizer.missing-special-token"));
  CHECK_THAT(fault(small_llama().file("llama", "")), Catch::Contains("tokenizer.missing-special-token"));
  // An id outside the vocabulary stands for no token: refused only where a text needs one.
  for (const char* name : {"bos", "eos"}) {
    CAPTURE(name);
    const auto file = [&](std::uint32_t id, bool adds) {
      GgufBuilder made = small_llama().file("llama", "").u32(text("tokenizer.ggml.", name, "_token_id"), id);
      for (const char* other : {"bos", "eos"}) {
        made.boolean(text("tokenizer.ggml.add_", other, "_token"), adds && std::string_view(name) == other);
      }
      return made;
    };
    for (const std::uint32_t id : {10u, ~0u}) {
      CHECK_THAT(fault(file(id, true)), Catch::Contains(text(name, "_token_id is u32 ", id)) &&
                                            Catch::Contains("0..9") &&
                                            Catch::Contains("tokenizer.missing-special-token"));
      CHECK(encode(file(id, false)) == Ids{8});
    }
  }
  CHECK_THAT(fault(small_llama().file("llama", "").number("tokenizer.ggml.bos_token_id", gguf_i32, -1)),
             Catch::Contains("tokenizer.missing-special-token"));
  CHECK_THAT(fault(small_llama().file("llama", "").string("tokenizer.ggml.bos_token_id", "<s>")),
             Catch::Contains("gguf.bad-value"));
}

TEST_CASE("a GGUF tokenizer is the same whatever types of numbers its metadata have") {
  const GgufVocabulary made = small_llama();
  const auto encode = [&]<class Type, class Score, class Flag>(std::uint32_t type, Type, std::uint32_t score, Score,
                                                               std::uint32_t flag, Flag) {
    GgufBuilder file;
    file.string("general.architecture", "llama").string("tokenizer.ggml.model", "llama");
    file.strings("tokenizer.ggml.tokens", made.tokens);
    file.numbers("tokenizer.ggml.token_type", type, std::vector<Type>(made.types.begin(), made.types.end()));
    std::vector<Score> scores;
    for (const float one : made.scores) scores.push_back(static_cast<Score>(one));
    file.numbers("tokenizer.ggml.scores", score, scores);
    file.number("tokenizer.ggml.bos_token_id", type, Type{1}).number("tokenizer.ggml.add_bos_token", flag, Flag{1});
    file.number("tokenizer.ggml.add_space_prefix", flag, Flag{0});
    return read(file).encode("ab<mask>");
  };
  const Ids expected{1, 7, 9};
  CHECK(encode(5, std::int32_t{}, 6, float{}, 7, std::uint8_t{}) == expected);
  CHECK(encode(4, std::uint32_t{}, 12, double{}, 0, std::uint8_t{}) == expected);
  CHECK(encode(11, std::int64_t{}, 5, std::int32_t{}, 5, std::int32_t{}) == expected);
  CHECK(encode(6, float{}, 3, std::int16_t{}, 6, float{}) == expected);
  CHECK(encode(0, std::uint8_t{}, 11, std::int64_t{}, 10, std::uint64_t{}) == expected);
}

TEST_CASE("words that are tokens stay whole where the GGUF pre-tokenizer is Llama-3's") {
  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.place(5, "ba", 1);  // no merge leads to it
  for (const auto& [pre, ids] : std::map<std::string, Ids>{{"dbrx", {1, 0}}, {"llama-bpe", {5}}}) {
    const GgufBuilder file = vocabulary.file("gpt2", pre).boolean("tokenizer.ggml.add_bos_token", false);
    CHECK(read(file).encode("ba") == ids);
  }
}

TEST_CASE("a GGUF vocabulary of merges is read with each known pre-tokenizer") {
  for (const auto& known : tokenizer_file::gguf_pre_tokenizers) {
    INFO(known.name);
    const Tokenizer tokenizer = read(small_gpt2()
                                         .file("gpt2", std::string{known.name})
                                         .u32("tokenizer.ggml.bos_token_id", 4)
                                         .boolean("tokenizer.ggml.add_bos_token", false));
    CHECK(tokenizer.encode("abb") == Ids{3});
    CHECK(tokenizer.decode(Ids{3, 0}) == "abba");
  }
}

TEST_CASE("Gemma's vocabulary in GGUF marks spaces and falls back to bytes") {
  GgufVocabulary made;
  made.place(0, "<unk>", 2);
  for (const char* token : {"▁", "a", "b", "▁a", "▁▁", "\n"}) made.place(made.tokens.size(), token, 1);
  made.place(7, "<0xC3>", 6);
  made.place(8, "<0xA9>", 6);
  made.place(9, "<bos>", 3);
  made.merges = {"▁ a", "▁ ▁"};
  for (const char* pre : {"gemma4", ""}) {
    const GgufBuilder file = made.file("gemma4", pre).u32("tokenizer.ggml.bos_token_id", 9);
    const Tokenizer tokenizer = read(file);
    CHECK(tokenizer.encode("a a  b\n\u00E9?") == Ids{2, 4, 5, 3, 6, 7, 8, 0});
    CHECK(tokenizer.decode(Ids{2, 4, 5, 3, 6, 7, 8}) == "a a  b\n\u00E9");
    CHECK(tokenizer.decode(Ids{4}) == " a");
  }
}

TEST_CASE("a GGUF file without a leading space has none, there and back") {
  const auto file = [](bool space) {
    return small_llama()
        .file("llama", "")
        .boolean("tokenizer.ggml.add_bos_token", false)
        .boolean("tokenizer.ggml.add_space_prefix", space);
  };
  const Tokenizer with = read(file(true)), without = read(file(false));
  CHECK(with.encode("ab<s>ab") == Ids{8, 1, 8});
  CHECK(without.encode("ab<s> ab") == Ids{7, 1, 8});
  CHECK(with.decode(Ids{8, 8}) == "ab ab");
  CHECK(without.decode(Ids{8, 8}) == " ab ab");
}

TEST_CASE("special, user-defined and unused tokens of a GGUF file are what their types say") {
  const Tokenizer llama = read(small_llama().file("llama", "").boolean("tokenizer.ggml.add_bos_token", false));
  CHECK(llama.is_special(0));
  CHECK(llama.is_special(1));
  CHECK_FALSE(llama.is_special(9));
  CHECK(llama.is_control(9));
  CHECK(llama.encode("a<mask>") == Ids{6, 9});

  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.place(6, "abab", 4);  // place 5 is unused
  vocabulary.place(7, "", 1);
  const Tokenizer tokenizer = read(vocabulary.file("gpt2", "gpt-2"));
  CHECK(tokenizer.encode("ababb<|end|>") == Ids{6, 1, 4});
  CHECK(tokenizer.encode("[PAD5]").empty());  // no byte of it is a token
  CHECK_FALSE(tokenizer.is_token(5));
  CHECK_FALSE(tokenizer.is_token(7));
  CHECK(tokenizer.decode(Ids{6, 5, 7, 4, 0}) == "ababa");
  CHECK(tokenizer.decode(Ids{6, 4}, false) == "abab<|end|>");
}

TEST_CASE("merges lead to no token that was added to a SentencePiece model") {
  for (const auto& [score, ids] : std::map<float, Ids>{{-1000, {3, 6}}, {-7, {10}}}) {
    GgufVocabulary vocabulary = small_llama();
    vocabulary.place(10, "▁▁a", 4, score);
    const Tokenizer tokenizer = read(vocabulary.file("llama", "").boolean("tokenizer.ggml.add_bos_token", false));
    CHECK(tokenizer.encode(" a") == ids);
  }
}

TEST_CASE("merges of a GGUF file may lead to added tokens, and may need them") {
  for (const std::int32_t type : {2, 3, 4}) {
    GgufVocabulary vocabulary = small_gpt2();
    vocabulary.types[2] = type;  // "ab", which "abb" needs
    vocabulary.place(5, "Ä", type);
    vocabulary.place(6, "Ġ", 1);
    vocabulary.place(7, "Ġa", type);
    vocabulary.place(8, "never", type);
    vocabulary.merges.push_back("Ġ a");
    const Tokenizer tokenizer = read(vocabulary.file("gpt2", "gpt-2"));
    CHECK(tokenizer.encode("ab a") == Ids{2, 7});
    CHECK(tokenizer.encode("abb") == Ids{2, 1});
    CHECK(tokenizer.encode("a b\xD8\xB4") == Ids{0, 6, 1});
    CHECK(tokenizer.encode("\xC4\x80") == Ids{5});  // the byte C4, whose character is Ä
    CHECK(tokenizer.encode("Ä") == Ids{5});
    CHECK(tokenizer.is_special(2) == (type != 4));
    CHECK(tokenizer.piece(2) == "ab");
    // As a literal text it is characters, by whatever merges it is made.
    const TextPart part{"ab", true};
    CHECK(tokenizer.encode({&part, 1}, false) == Ids{0, 1});
  }
}

TEST_CASE("every kind of broken GGUF vocabulary is refused with its own error") {
  const auto gpt2 = [](auto&& change) {
    GgufVocabulary vocabulary = small_gpt2();
    change(vocabulary);
    return fault(vocabulary.file("gpt2", "gpt-2"));
  };
  using V = GgufVocabulary;
  CHECK_THAT(gpt2([](V& v) { v.tokens.clear(), v.types.clear(); }), Catch::Contains("tokenizer.empty-vocabulary"));
  CHECK_THAT(gpt2([](V& v) { v.types.pop_back(); }),
             Catch::Contains("token_type") && Catch::Contains("gguf.bad-value"));
  CHECK_THAT(gpt2([](V& v) { v.types[0] = 0; }), Catch::Contains("tokenizer.token-type"));
  CHECK_THAT(gpt2([](V& v) { v.types[0] = 7; }), Catch::Contains("tokenizer.token-type"));
  CHECK_THAT(gpt2([](V& v) { v.types[0] = -1; }), Catch::Contains("tokenizer.token-type"));
  CHECK_THAT(gpt2([](V& v) { v.tokens[1] = "a"; }), Catch::Contains("'a'") && Catch::Contains("tokenizer.duplicate"));
  CHECK_THAT(gpt2([](V& v) { v.tokens[4] = "a"; }), Catch::Contains("'a'") && Catch::Contains("tokenizer.duplicate"));
  CHECK_THAT(gpt2([](V& v) { v.tokens[0] = "\xFF"; }),
             Catch::Contains("token 0") && Catch::Contains("tokenizer.not-utf8"));
  CHECK_THAT(gpt2([](V& v) { v.tokens[4] = std::string(1025, 'x'); }), Catch::Contains("tokenizer.long-token"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = "abb"; }),
             Catch::Contains("merges[1]") && Catch::Contains("tokenizer.bad-merge"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = ""; }),
             Catch::Contains("merges[1]") && Catch::Contains("tokenizer.bad-merge"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = " abb"; }), Catch::Contains("tokenizer.bad-merge"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = "x b"; }),
             Catch::Contains("'x'") && Catch::Contains("tokenizer.missing-merge-token"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = "b b"; }),
             Catch::Contains("'bb'") && Catch::Contains("tokenizer.missing-merge-token"));
  CHECK_THAT(gpt2([](V& v) { v.merges[1] = "ab "; }), Catch::Contains("tokenizer.missing-merge-token"));
  CHECK_THAT(fault(small_gpt2().file("gpt2", "")),
             Catch::Contains("gguf-new-metadata") && Catch::Contains("tokenizer.no-pre"));
  CHECK_THAT(fault(small_gpt2().file("gpt2", "default")), Catch::Contains("tokenizer.no-pre"));
  CHECK_THAT(fault(small_gpt2().file("gpt2", "sophia")),
             Catch::Contains("'sophia'") && Catch::Contains("qwen2") && Catch::Contains("tokenizer.unknown-pre"));
  CHECK_THAT(fault(small_gpt2().file("t5", "")), Catch::Contains("'t5'") && Catch::Contains("tokenizer.unsupported"));
  CHECK_THAT(fault(GgufBuilder().string("tokenizer.ggml.model", "gpt2")),
             Catch::Contains("tokenizer.ggml.tokens") && Catch::Contains("gguf.missing-key"));
  CHECK_THAT(fault(GgufBuilder()), Catch::Contains("tokenizer.not-found"));

  const auto llama = [](auto&& change) {
    GgufVocabulary vocabulary = small_llama();
    change(vocabulary);
    return fault(vocabulary.file("llama", "").u32("tokenizer.ggml.bos_token_id", 1));
  };
  CHECK_THAT(llama([](V& v) { v.scores[3] = std::nanf(""); }),
             Catch::Contains("token 3") && Catch::Contains("tokenizer.bad-score"));
  CHECK_THAT(fault(GgufBuilder()
                       .string("tokenizer.ggml.model", "llama")
                       .strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"})
                       .numbers("tokenizer.ggml.scores", 12, std::vector<double>{1e300})),
             Catch::Contains("token 0") && Catch::Contains("tokenizer.bad-score"));
  CHECK_THAT(llama([](V& v) { std::fill(v.scores.begin(), v.scores.end(), -1000.0f); }),
             Catch::Contains("tokenizer.bad-score"));
  CHECK_THAT(llama([](V& v) { v.scores.push_back(0); }),
             Catch::Contains("scores") && Catch::Contains("gguf.bad-value"));
  CHECK_THAT(llama([](V& v) { v.tokens[3] = std::string(513, 'x'); }), Catch::Contains("tokenizer.long-token"));
  CHECK_THAT(
      fault(small_llama().file("llama", "").strings("tokenizer.ggml.precompiled_charsmap", std::vector<std::string>{})),
      Catch::Contains("tokenizer.unsupported"));
}
