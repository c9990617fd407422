#include "api/auto_calls.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace serve {

namespace {

/// Finds a text in bytes that come one by one (Knuth, Morris and Pratt).
class Finder {
 public:
  explicit Finder(std::string text) : text_(std::move(text)), shorter_(text_.size() + 1, 0) {
    for (std::size_t i = 1; i < text_.size(); ++i) shorter_[i + 1] = next(shorter_[i], text_[i]);
  }

  /// Of the text, the longest beginning that the bytes so far end with; matched: the one before the byte.
  std::size_t next(std::size_t matched, char byte) const {
    if (text_.empty()) return 0;
    if (matched == text_.size()) matched = shorter_[matched];
    while (matched > 0 && text_[matched] != byte) matched = shorter_[matched];
    return text_[matched] == byte ? matched + 1 : 0;
  }
  bool is_found(std::size_t matched) const { return !text_.empty() && matched == text_.size(); }

 private:
  std::string text_;
  std::vector<std::size_t> shorter_;  // by a matched length: the next shorter one
};

/// Where an answer is.
struct Place {
  enum class Kind : std::uint8_t { text, reasoning, call };

  Kind kind = Kind::text;
  std::size_t opening = 0, begin = 0, end = 0;  // matched bytes of the tags
  std::size_t calls = 0;                        // begun so far
  std::size_t taken = 0;                        // tokens of the last call
};

class CallsConstraint final : public slm::OutputConstraint, public std::enable_shared_from_this<CallsConstraint> {
 public:
  CallsConstraint(CallTags tags, slm::ConstraintRef call, slm::TokenTrie tokens)
      : call_(std::move(call)),
        tokens_(std::move(tokens)),
        opening_(tags.opening),
        begin_(tags.begin),
        end_(tags.end),
        begun_(tags.begun) {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const auto token = static_cast<slm::Token>(id);
      if (may_pass(tokens_.bytes(token), tags.opening)) passing_.push_back(token);
    }
  }

  std::unique_ptr<slm::ConstraintState> begin() const override;
  std::size_t vocab() const override { return tokens_.size(); }
  bool has_text(slm::Token token) const override { return !tokens_.bytes(token).empty(); }

  Place first() const { return {.kind = begun_ ? Place::Kind::reasoning : Place::Kind::text}; }
  /// The place behind a token that does not follow in a call. Returns false if the token passes the opening tag.
  bool advance(Place& place, slm::Token token) const {
    const std::string& bytes = tokens_.bytes(token);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (place.kind == Place::Kind::call) return false;
      advance(place, bytes[i]);
    }
    return true;
  }
  const std::vector<slm::Token>& passing() const { return passing_; }
  std::unique_ptr<slm::ConstraintState> begin_call() const { return call_->begin(); }

 private:
  void advance(Place& place, char byte) const {
    if (place.kind == Place::Kind::reasoning) {
      place.end = end_.next(place.end, byte);
      if (end_.is_found(place.end)) place = {.calls = place.calls, .taken = place.taken};
      return;
    }
    place.opening = opening_.next(place.opening, byte);
    place.begin = begin_.next(place.begin, byte);
    if (opening_.is_found(place.opening)) {
      place = {.kind = Place::Kind::call, .calls = place.calls + 1};
    } else if (begin_.is_found(place.begin)) {
      place = {.kind = Place::Kind::reasoning, .calls = place.calls, .taken = place.taken};
    }
  }

  /// Whether the opening tag may end inside of the token.
  static bool may_pass(std::string_view token, std::string_view opening) {
    for (std::size_t length = 1; length < token.size(); ++length) {
      const std::string_view part = token.substr(0, length);
      if (part.size() <= opening.size() ? opening.ends_with(part) : part.ends_with(opening)) return true;
    }
    return false;
  }

  slm::ConstraintRef call_;
  slm::TokenTrie tokens_;
  Finder opening_, begin_, end_;
  bool begun_;
  std::vector<slm::Token> passing_;  // tokens that may pass the opening tag
};

class CallsState final : public slm::ConstraintState {
 public:
  explicit CallsState(std::shared_ptr<const CallsConstraint> constraint)
      : constraint_(std::move(constraint)), places_{constraint_->first()} {}

  bool advance(slm::Token token) override {
    Place place = places_.back();
    if (place.kind == Place::Kind::call) {
      slm::ConstraintState& call = *calls_.back();
      if (!call.advance(token)) return false;
      try {
        ++place.taken;
        if (call.must_end()) place.kind = Place::Kind::text;
        places_.push_back(place);
      } catch (...) {
        call.truncate(place.taken - 1);
        throw;
      }
      return true;
    }
    if (!constraint_->advance(place, token)) return false;
    if (place.calls > calls_.size()) calls_.push_back(constraint_->begin_call());
    places_.push_back(place);
    return true;
  }

  void truncate(std::size_t tokens) override {
    places_.resize(tokens + 1);
    const Place& place = places_.back();
    calls_.resize(place.calls);
    if (place.calls > 0) calls_.back()->truncate(place.taken);
  }

  bool may_end() const override { return places_.back().kind != Place::Kind::call || calls_.back()->may_end(); }
  bool must_end() const override { return false; }

  void mask(std::span<std::uint64_t> bits) const override {
    const Place& place = places_.back();
    if (place.kind == Place::Kind::call) return calls_.back()->mask(bits);
    std::fill(bits.begin(), bits.end(), ~std::uint64_t{0});
    for (const slm::Token token : constraint_->passing()) {
      Place next = place;
      if (constraint_->advance(next, token)) continue;
      bits[static_cast<std::size_t>(token) / 64] &= ~(std::uint64_t{1} << static_cast<unsigned>(token) % 64);
    }
  }

  void forced(std::size_t most, std::vector<slm::Token>& out) const override {
    if (places_.back().kind == Place::Kind::call) calls_.back()->forced(most, out);
  }

 private:
  std::shared_ptr<const CallsConstraint> constraint_;
  std::vector<Place> places_;  // before the first token, and behind each
  std::vector<std::unique_ptr<slm::ConstraintState>> calls_;
};

std::unique_ptr<slm::ConstraintState> CallsConstraint::begin() const {
  return std::make_unique<CallsState>(shared_from_this());
}

}  // namespace

slm::ConstraintRef auto_calls(CallTags tags, slm::ConstraintRef call, const slm::TokenTrie& tokens) {
  return std::make_shared<const CallsConstraint>(std::move(tags), std::move(call), tokens);
}

}  // namespace serve
