// TextStream: what is streamed is what the text gains over its prompt's, whole characters at a time, up to a stop
// string.
#include "slm/text/text_stream.hpp"
#include "slm/text/utf8.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.hpp"

using slm::TextStream;
using slm::Token;
using slm::Tokenizer;

namespace {

const std::vector<std::string> names{"gpt2",  "llama2_legacy", "llama2_metaspace", "llama3", "neox", "phi3",
                                     "qwen2", "smollm"};

Tokenizer tiny(const std::string& name) {
  return Tokenizer::from(slm::testing::fixture("tokenizers/" + name + ".json"));
}

struct Streamed {
  std::string text;
  std::size_t taken = 0;  // tokens until the stream wanted no more
  bool whole_characters = true;
  std::string stop;
};

Streamed continued(const Tokenizer& tokenizer, std::span<const Token> prompt, std::span<const Token> tokens,
                   const std::vector<std::string>& stops = {}) {
  Streamed result;
  TextStream sink(
      tokenizer, prompt,
      [&](std::string_view piece) {
        result.whole_characters = result.whole_characters && !piece.empty() && slm::utf8::is_valid(piece);
        result.text += piece;
      },
      stops);
  for (const Token token : tokens) {
    ++result.taken;
    if (!sink(token)) break;
  }
  sink.finish();
  result.stop = sink.stop_string();
  return result;
}

Streamed stream(const Tokenizer& tokenizer, const std::vector<Token>& tokens,
                const std::vector<std::string>& stops = {}) {
  return continued(tokenizer, {}, tokens, stops);
}

std::vector<Token> random_tokens(const Tokenizer& tokenizer, std::mt19937& random) {
  std::vector<Token> tokens;
  for (std::size_t left = random() % 24; left > 0; --left) {
    const auto any =
        static_cast<Token>(random() % static_cast<unsigned>(tokenizer.vocab() + 3)) - 1;  // some are no tokens
    tokens.push_back(random() % 3 == 0 ? any : static_cast<Token>(random() % 262));  // the first ids are mostly bytes
  }
  return tokens;
}

}  // namespace

TEST_CASE("text stream: random tokens streamed are the tokens decoded") {
  std::mt19937 random(5);
  for (const std::string& name : names) {
    const Tokenizer tokenizer = tiny(name);
    for (int round = 0; round < 1500; ++round) {
      const auto tokens = random_tokens(tokenizer, random);
      const Streamed streamed = stream(tokenizer, tokens);
      REQUIRE(streamed.text == tokenizer.decode(tokens));
      REQUIRE(streamed.whole_characters);
    }
  }
}

TEST_CASE("text stream: a prompt's text and the text streamed after it are the whole text, wherever it is cut") {
  const std::string text = "Lily and  Tom\n    return x\n\n\U0001F642 caf\u00E9 \u65E5\u672C \u2581<s> y";
  for (const std::string& name : names) {
    CAPTURE(name);
    const Tokenizer tokenizer = tiny(name);
    const auto tokens = tokenizer.encode(text);
    const std::string whole = tokenizer.decode(tokens);
    for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
      const auto prompt = std::span{tokens}.first(cut);
      const std::string before = tokenizer.decode(prompt);
      const Streamed streamed = continued(tokenizer, prompt, std::span{tokens}.subspan(cut));
      REQUIRE(streamed.whole_characters);
      if (whole.starts_with(before)) {
        REQUIRE(before + streamed.text == whole);
      } else {  // the cut goes through a character
        REQUIRE(before.ends_with("\uFFFD"));
        REQUIRE(whole.ends_with(streamed.text));
      }
    }
  }
}

TEST_CASE("text stream: random tokens after random prompts add what the whole text has more") {
  std::mt19937 random(7);
  for (const std::string& name : names) {
    CAPTURE(name);
    const Tokenizer tokenizer = tiny(name);
    for (int round = 0; round < 3000; ++round) {
      const auto prompt = random_tokens(tokenizer, random);
      auto tokens = random_tokens(tokenizer, random);
      const Streamed streamed = continued(tokenizer, prompt, tokens);
      tokens.insert(tokens.begin(), prompt.begin(), prompt.end());
      const std::string before = tokenizer.decode(prompt), whole = tokenizer.decode(tokens);
      CAPTURE(prompt, tokens);
      REQUIRE(streamed.whole_characters);
      // Where bytes of the prompt and of what follows make or break a character together, the prompt's text changes.
      const bool kept = whole.starts_with(before);
      REQUIRE((kept ? before + streamed.text == whole : whole.ends_with(streamed.text)));
    }
  }
}

TEST_CASE(
    "text stream: the space between a prompt and its continuation is there, and a stop string may begin with it") {
  for (const std::string& name : names) {
    CAPTURE(name);
    const Tokenizer tokenizer = tiny(name);
    const auto prompt = tokenizer.encode("The pump");
    auto tokens = tokenizer.encode("The pump runs");
    REQUIRE(std::equal(prompt.begin(), prompt.end(), tokens.begin()));
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
    CHECK(continued(tokenizer, prompt, tokens).text == " runs");
    CHECK(continued(tokenizer, prompt, tokens, {" r"}).text == "");
    CHECK(continued(tokenizer, prompt, tokens, {"p r"}).text == " runs");  // the prompt is no part of it
  }
}

TEST_CASE("text stream: byte tokens that end the prompt are its own") {
  const Tokenizer tokenizer = tiny("llama2_legacy");
  const auto byte = [&](const char* name) { return tokenizer.token(name).value(); };
  const Token a = byte("a"), newline = byte("<0x0A>");
  const std::vector<Token> prompt{a, newline};
  CHECK(continued(tokenizer, prompt, std::vector{a}).text == "a");
  CHECK(continued(tokenizer, prompt, std::vector{newline, a}).text == "\na");
  CHECK(continued(tokenizer, prompt, std::vector{newline, a}, {"\n\n"}).text == "\na");
  CHECK(continued(tokenizer, prompt, std::vector{newline, newline}, {"\n\n"}).text == "");
  CHECK(continued(tokenizer, prompt, std::vector{byte("<0xFF>"), a}).text == "\uFFFDa");
  const std::vector<Token> open{newline, byte("<0xE6>"), byte("<0x97>")};  // of the three bytes of U+65E5
  CHECK(continued(tokenizer, open, std::vector{byte("<0xA5>"), a}).text == "\u65E5a");
  CHECK(continued(tokenizer, open, std::vector{a}).text == "a");
  CHECK(continued(tokenizer, open, std::vector{newline, a}).text == "\uFFFDa");
}

TEST_CASE("text stream: real text arrives whole and without replacement characters") {
  const std::string text = " The pump\n\n\U0001F642 caf\u00E9 \u65E5\u672C\U0001F44D\U0001F3FD e\u0301 \u2581 x";
  for (const std::string& name : names) {
    const Tokenizer tokenizer = tiny(name);
    const auto tokens = tokenizer.encode(text, false);
    std::string seen;
    TextStream sink(tokenizer, {}, [&](std::string_view piece) {
      CHECK(piece.find("\uFFFD") == piece.npos);
      seen += piece;
    });
    for (const Token token : tokens) CHECK(sink(token));
    sink.finish();
    CHECK(seen == tokenizer.decode(tokens));
  }
}

TEST_CASE("text stream: text is shown as soon as it is certain") {
  const Tokenizer tokenizer = tiny("gpt2");
  std::string seen;
  TextStream sink(tokenizer, {}, [&](std::string_view piece) { seen += piece; });
  for (const Token token : tokenizer.encode("ab", false)) sink(token);
  CHECK(seen == "ab");
  const auto smile = tokenizer.encode("\U0001F642", false);
  REQUIRE(smile.size() == 4);
  for (std::size_t i = 0; i < 3; ++i) sink(smile[i]);
  CHECK(seen == "ab");
  sink(smile[3]);
  CHECK(seen == "ab\U0001F642");
  sink(smile[0]);
  sink.finish();
  CHECK(seen == "ab\U0001F642\uFFFD");  // an unfinished character at the very end
}

TEST_CASE("text stream: stop strings end generation, whatever the tokens between") {
  std::mt19937 random(6);
  int stops_found = 0;
  for (const std::string& name : names) {
    const Tokenizer tokenizer = tiny(name);
    for (int round = 0; round < 600; ++round) {
      auto tokens = tokenizer.encode("x\n\nThe pump \U0001F642\U0001F642 runs\nand\u65E5\u672C stop", false);
      std::shuffle(tokens.begin() + 2, tokens.end(), random);
      const std::vector<std::string> stops{"\n", "pump r", "\U0001F642", "an"};
      const Streamed streamed = stream(tokenizer, tokens, {stops[random() % 4], stops[random() % 4]});
      if (streamed.taken == tokens.size()) continue;
      ++stops_found;
      // The stop is complete with the last token taken and not before; the text before it is shown.
      const auto decoded = [&](std::size_t count) { return tokenizer.decode(std::span{tokens}.first(count)); };
      REQUIRE(decoded(streamed.taken).starts_with(streamed.text));
      bool stop_follows = false;
      for (const std::string& stop : stops)
        stop_follows |= decoded(streamed.taken).substr(streamed.text.size()).starts_with(stop);
      REQUIRE(stop_follows);
    }
  }
  CHECK(stops_found > 1000);
}

TEST_CASE("text stream: a newline that is a byte token stops at once") {
  const Tokenizer tokenizer = tiny("llama2_legacy");
  const Token newline = tokenizer.token("<0x0A>").value();
  const Token a = tokenizer.token("a").value();
  for (const std::vector<Token>& tokens : {std::vector<Token>{a, newline, a}, std::vector<Token>{newline, a}}) {
    const Streamed streamed = stream(tokenizer, tokens, {"\n"});
    CHECK(streamed.taken == tokens.size() - 1);
    CHECK(streamed.text == (tokens[0] == a ? "a" : ""));
    CHECK(streamed.stop == "\n");
  }
  const Token space = tokenizer.token("<0x20>").value();  // the space that is stripped is no part of the text
  CHECK(stream(tokenizer, {space, newline}, {" \n"}).text == "\n");
  CHECK(stream(tokenizer, {space, space, newline, a}, {" \n"}).taken == 3);
}

TEST_CASE("text stream: a failing output and a bad stop string are errors") {
  const Tokenizer tokenizer = tiny("gpt2");
  std::ostringstream output;
  TextStream sink(tokenizer, {}, output);
  sink(tokenizer.encode("a", false).at(0));
  CHECK(output.str() == "a");
  output.setstate(std::ios::badbit);
  const auto write = [&] { sink(tokenizer.encode("a", false).at(0)); };
  CHECK_THROWS_WITH(write(), Catch::Matchers::Contains("[text.output-failed]"));
  CHECK_THROWS_WITH(TextStream(tokenizer, {}, output, {"\xFF"}), Catch::Matchers::Contains("[text.bad-stop-string]"));
}

TEST_CASE("text stream: outlives the tokenizer it was made from") {
  std::ostringstream output;
  const auto make = [&output] { return TextStream(tiny("gpt2"), {}, output, {"stop"}); };
  TextStream sink = make();
  for (const Token token : tiny("gpt2").encode("run stop run")) {
    if (!sink(token)) break;
  }
  sink.finish();
  CHECK(sink.stopped());
  CHECK(output.str() == "run ");
}
