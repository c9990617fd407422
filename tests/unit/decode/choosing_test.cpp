// Models that choose tokens themselves give the same text as models whose logits the decoder reads.
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/grammar.hpp"
#include "slm/lm/any_model.hpp"
#include "support/toy_constraints.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// A toy that chooses like a device: from its own rows, by the draw and the mask alone. `broken` is the length after
/// which its rows are invalid.
class ChoosingToy {
 public:
  explicit ChoosingToy(ToyOptions options, int broken = -1) : toy_(std::move(options)), broken_(broken) {
    toy_.info().chooses = true;
  }

  const ModelInfo& info() const { return toy_.info(); }
  Sequence sequence() const { return toy_.sequence(); }
  KvPool pool(KvPoolOptions options = {}) const { return toy_.pool(options); }

  void forward(Batch& batch) const {
    const Batch::Item& item = batch.items().front();
    if (item.spec.result != RowResult::choice) return toy_.forward(batch);
    if (item.spec.chain > 1) {
      batch.reserve(info().vocab, 0);
      return detail::forward_one_by_one(*this, batch);
    }
    ++*calls;
    Batch logits;
    logits.add(*item.sequence, batch.tokens(item), {.result = RowResult::logits, .rows = item.spec.rows});
    toy_.forward(logits);
    batch.reserve(info().vocab, 0);
    if (!item.spec.masks.empty() && batch.before_masks()) batch.before_masks()();
    choose(item, logits.logits(0), batch.choice_at(item.answer));
  }

  std::shared_ptr<int> calls = std::make_shared<int>();
  bool ignores_masks = false;

 private:
  /// A copy of a row without the tokens that its mask forbids.
  std::vector<float> row_of(const Batch::Item& item, const float* logits, std::size_t width, int r) const {
    std::vector<float> row(logits, logits + width);
    if (item.spec.masks.empty() || ignores_masks) return row;
    const TokenMask mask = item.spec.masks[static_cast<std::size_t>(r)];
    for (std::size_t id = 0; !mask.empty() && id < width; ++id) {
      if ((mask[id / 64] >> id % 64 & 1) == 0) row[id] = -std::numeric_limits<float>::infinity();
    }
    return row;
  }

  void choose(const Batch::Item& item, View<const float, 2> logits, Token* out) const {
    const Draw& draw = item.spec.draw;
    const int rows = item.spec.rows, length = item.sequence->length();
    const auto width = static_cast<std::size_t>(std::min(info().vocab, draw.vocab));
    Sampling sampling{.temperature = 0, .seed = draw.seed};
    if (!draw.greedy()) sampling.temperature = static_cast<float>(1.4426950408889634 * 0x1p31 / draw.scale);
    sampling.top_k = draw.top_k;
    if (draw.top_p != 0) sampling.top_p = static_cast<float>(draw.top_p) * 0x1p-32f;
    for (int r = 0; r < rows; ++r) {
      Processor processor;
      processor.start(sampling, static_cast<int>(width), item.sequence->tokens(), 1);
      const auto position = static_cast<std::uint64_t>(length - rows + r + 1);
      Distribution p;
      const bool usable =
          processor.distribution(row_of(item, logits.row(r), width, r), p) && static_cast<int>(position) != broken_;
      out[r] = usable ? PhiloxRandom{draw.seed, position}.race(0, p) : no_token;
    }
  }

  ToyModel toy_;
  int broken_;
};

static_assert(LanguageModel<ChoosingToy>);

const ToyOptions target_options{.vocab = 40, .seed = 3, .end_tokens = {7}};
const ToyOptions draft_options{.vocab = 44, .seed = 3, .other_share = 0.3, .end_tokens = {7}};

template <class Decoder>
std::vector<Token> text_of(Decoder& decoder, const Sampling& sampling, Stats* stats = nullptr) {
  std::vector<Token> text;
  const Stats found =
      decoder.generate(std::vector<Token>{1, 2, 3}, sampling, [&](Token token) { text.push_back(token); });
  if (stats != nullptr) *stats = found;
  return text;
}

}  // namespace

TEST_CASE("the text is the same whether the decoder or the model chooses") {
  const std::vector<Sampling> samplings{
      {.temperature = 0}, {.seed = 4}, {.temperature = 0.5f, .top_k = 9, .top_p = 0.75f}};
  for (Sampling sampling : samplings) {
    sampling.max_new_tokens = 60;
    for (const bool ignore : {false, true}) {
      sampling.ignore_end_tokens = ignore;
      AutoregressiveDecoder plain{ToyModel{target_options}};
      const std::vector<Token> expected = text_of(plain, sampling);
      for (const int draft_length : {1, 4, 9}) {
        CAPTURE(sampling.temperature, ignore, draft_length);
        const Speculation speculation{.draft_tokens = draft_length};
        ChoosingToy draft{draft_options}, target{target_options};
        const auto drafted = draft.calls, verified = target.calls;
        SpeculativeDecoder both{std::move(draft), std::move(target), speculation};
        Stats stats;
        CHECK(text_of(both, sampling, &stats) == expected);
        CHECK(*verified == stats.rounds);
        CHECK(*drafted > 0);
        CHECK(stats.draft_faults == 0);
        SpeculativeDecoder reference{ToyModel{draft_options}, ToyModel{target_options}, speculation};
        Stats usual;
        CHECK(text_of(reference, sampling, &usual) == expected);
        CHECK(stats.accepted == usual.accepted);  // the draft's tokens are the same, too
        SpeculativeDecoder one{ChoosingToy{draft_options}, ToyModel{target_options}, speculation};
        CHECK(text_of(one, sampling) == expected);
        SpeculativeDecoder other{AnyModel{ToyModel{draft_options}}, AnyModel{ChoosingToy{target_options}}, speculation};
        CHECK(text_of(other, sampling) == expected);
      }
    }
  }
}

TEST_CASE("the decoder chooses where it needs logits or distributions") {
  const auto calls_of = [](const Sampling& sampling, auto rule, auto sink, Speculation speculation,
                           Logprobs logprobs = {}) {
    ChoosingToy draft{draft_options}, target{target_options};
    const auto drafted = draft.calls, verified = target.calls;
    SpeculativeDecoder both{std::move(draft), std::move(target), std::move(speculation), rule};
    both.generate(Request{.prompt = {1, 2, 3}, .sampling = sampling, .logprobs = logprobs}, sink);
    return std::pair{*drafted > 0, *verified > 0};
  };
  const Speculation four{.draft_tokens = 4};  // adaptive lengths depend on the time of steps
  const auto tokens = [](Token) {};
  const auto emitted = [](const GeneratedToken&) {};
  const Sampling some{.max_new_tokens = 9, .ignore_end_tokens = true}, greedy{.max_new_tokens = 9, .temperature = 0};
  Sampling penalised = greedy, masked = some;
  penalised.presence_penalty = 0.5f;
  masked.adjust_logits = [](std::span<const Token>, std::span<float>) {};
  using Calls = std::pair<bool, bool>;  // of the draft, of the target
  CHECK(calls_of(some, rule::Coupled{}, tokens, four) == Calls{true, true});
  CHECK(calls_of(some, rule::Coupled{}, emitted, four) == Calls{true, true});
  CHECK(calls_of(some, rule::Coupled{}, emitted, four, {.raw = true}) == Calls{true, false});
  CHECK(calls_of(some, rule::Coupled{}, tokens, four, {.sampled = true}) == Calls{true, false});
  CHECK(calls_of(penalised, rule::Coupled{}, tokens, four) == Calls{false, false});
  CHECK(calls_of(masked, rule::Coupled{}, tokens, four) == Calls{false, false});
  CHECK(calls_of(some, rule::Ratio{}, tokens, four) == Calls{false, false});
  CHECK(calls_of(some, rule::Match{}, tokens, four) == Calls{false, false});
  CHECK(calls_of(greedy, rule::Ratio{}, tokens, four) == Calls{true, true});
  CHECK(calls_of(some, rule::Coupled{}, tokens, {.draft_length = draft_length::Confidence{}}) == Calls{false, true});
}

TEST_CASE("a row without a valid choice is an error of the target, and disables the draft") {
  for (const float temperature : {0.0f, 0.8f}) {
    const Sampling sampling{.max_new_tokens = 30, .temperature = temperature, .ignore_end_tokens = true};
    AutoregressiveDecoder broken{ChoosingToy{target_options, 9}};
    CHECK_THROWS_WITH(text_of(broken, sampling), Catch::Contains("decode.non-finite-logits"));
    AutoregressiveDecoder plain{ToyModel{target_options}};
    const std::vector<Token> expected = text_of(plain, sampling);
    for (int length = 3; length < 12; ++length) {
      CAPTURE(temperature, length);
      SpeculativeDecoder both{ChoosingToy{draft_options, length}, ChoosingToy{target_options}, {.draft_tokens = 4}};
      Stats stats;
      for (int again = 0; again < 2; ++again) {
        CHECK(text_of(both, sampling, &stats) == expected);
        CHECK(stats.draft_faults == 1);
        CHECK_THAT(stats.disabled_reason, Catch::Contains("expected finite logits"));
      }
    }
  }
}

namespace {

struct Answered {
  std::vector<Token> text;
  Stats stats;
  std::string error;

  /// An error ends a round, whose tokens are then not emitted.
  bool operator==(const Answered& other) const {
    if (!error.empty() || !other.error.empty()) return error == other.error;
    return text == other.text && stats.finish_reason == other.stats.finish_reason;
  }
};

template <class Decoder>
Answered answered(Decoder& decoder, const Request& request) {
  Answered answer;
  try {
    answer.stats = decoder.generate(request, [&](Token token) { answer.text.push_back(token); });
  } catch (const Error& error) {
    answer.error = error.what();
  }
  return answer;
}

/// Its mask fails after three tokens.
struct FailsAtThree : Unchanged {
  std::size_t length = 0;
  bool advance(ConstraintState& state, Token token) { return state.advance(token) && ++length; }
  void truncate(ConstraintState& state, std::size_t tokens) { state.truncate(length = tokens); }
  void mask(const ConstraintState& state, std::span<std::uint64_t> bits) const {
    if (length == 3) throw Error("grammar.limit", "a mask took too long", "Simplify it");
    state.mask(bits);
  }
};

}  // namespace

TEST_CASE("constrained: the text is the same whether the decoder or the model chooses, by a mask of each row") {
  int ignored = 0, ahead = 0, errors = 0, by_draft = 0;
  for (std::uint64_t number = 0; number < 600; ++number) {
    ToyRandom random{number};
    const std::vector<std::string> pieces = toy_pieces(number % 50);
    const ToyOptions options{.vocab = static_cast<int>(pieces.size() + random.pick(2) * 70),
                             .seed = 1 + number,
                             .end_tokens = {static_cast<Token>(pieces.size() - 1)}};
    ToyOptions other = options;
    other.other_share = static_cast<double>(random.pick(3)) / 3;
    other.vocab += random.pick(2) == 0 ? 0 : random.pick(2) == 0 ? 9 : -9;
    const Grammar grammar = number % 10 == 9 ? Grammar::regex("a{1,5}x") : random_grammar(random);
    Request request{.prompt = {1, 2},
                    .sampling = {.max_new_tokens = 1 + static_cast<int>(random.pick(28)),
                                 .temperature = std::vector<float>{0, 0.5f, 1}[random.pick(3)],
                                 .top_k = std::vector<int>{0, 0, 1, 3}[random.pick(4)],
                                 .top_p = random.pick(2) == 0 ? 1 : 0.8f,
                                 .seed = number},
                    .constraint = constrain(grammar, TokenTrie(pieces))};
    if (number % 20 == 19) request.constraint = std::make_shared<ChangedConstraint<FailsAtThree>>(request.constraint);
    CAPTURE(number);
    AutoregressiveDecoder plain{ToyModel{options}};
    const Answered expected = answered(plain, request);
    errors += !expected.error.empty();
    ChoosingToy target{options};
    const auto calls = target.calls;
    AutoregressiveDecoder choosing{target};
    const Answered alone = answered(choosing, request);
    REQUIRE(alone == expected);
    if (expected.error.empty()) REQUIRE(*calls == alone.stats.rounds);
    const Speculation speculation{.draft_tokens = 1 + static_cast<int>(random.pick(5)), .overlap = number % 3 != 0};
    const ChoosingToy draft{other};
    const auto drafted = draft.calls;
    SpeculativeDecoder both{draft, target, speculation}, draft_only{draft, ToyModel{options}, speculation};
    SpeculativeDecoder forced{Drafter{ForcedText{}, Lookup{}, ToyModel{other}}, target, speculation};
    SpeculativeDecoder usual{ToyModel{other}, ToyModel{options}, speculation};
    const Answered fast = answered(both, request), slow = answered(usual, request);
    REQUIRE(fast == expected);
    REQUIRE(answered(draft_only, request) == expected);
    REQUIRE(answered(forced, request) == expected);
    REQUIRE(answered(both, request) == expected);
    if (!speculation.overlap) {  // otherwise the number of tokens drafted ahead depends on time
      REQUIRE(fast.stats.accepted == slow.stats.accepted);
      REQUIRE(fast.stats.draft_faults == slow.stats.draft_faults);
    }
    ahead += fast.stats.drafts_ahead > 0;
    by_draft += *drafted;
    target.ignores_masks = true;
    AutoregressiveDecoder wrong{target};
    ignored += !(answered(wrong, request) == expected);
  }
  CHECK(ignored > 300);
  CHECK(ahead > 50);
  CHECK(errors > 20);
  CHECK(by_draft > 600);
}
