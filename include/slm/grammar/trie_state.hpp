// The state that copies of a TokenTrie share: the tree, and which tokens fit into JSON strings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/grammar/automaton.hpp"
#include "slm/grammar/characters.hpp"
#include "slm/grammar/expressions.hpp"
#include "slm/grammar/token_trie.hpp"
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// Bits of a mask: token t is bit t % 64 of word t / 64.
using Bits = std::vector<std::uint64_t>;

inline void set_bit(std::span<std::uint64_t> bits, Token token) {
  bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(token) % 64);
}
inline void clear_bit(std::span<std::uint64_t> bits, Token token) {
  bits[static_cast<std::size_t>(token) / 64] &= ~(std::uint64_t{1} << (static_cast<unsigned>(token) % 64));
}
inline void unite(std::span<std::uint64_t> bits, std::span<const std::uint64_t> others) {
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= others[i];
}

/// A node of the tree, in depth-first order.
struct TrieNode {
  std::uint32_t end;    // behind the last node below
  std::uint32_t depth;  // bytes from the root; the root is no node
  Token token;          // with exactly these bytes, or -1
  std::uint8_t byte;
};

/// Tokens inside of a JSON string, counted in characters.
struct StringTokens {
  struct Closing {
    std::uint32_t node, characters;
  };
  std::vector<Bits> inside;       // [n]: tokens of at most n characters, without a closing quote
  std::vector<Closing> closings;  // nodes that end with the closing quote
};

struct TrieState {
  std::vector<std::string> tokens;
  std::vector<TrieNode> nodes;
  std::vector<Token> next_same;  // by token: another one with the same bytes, or -1
  std::vector<Token> ends;
  std::optional<Tokenizer> tokenizer;  // none: only the bytes of tokens are known
  std::uint32_t deepest = 0;
  StringTokens strings;

  std::size_t words() const { return (tokens.size() + 63) / 64; }

  template <class Each>
  void each_token(const TrieNode& node, Each&& each) const {
    for (Token token = node.token; token >= 0; token = next_same[static_cast<std::size_t>(token)]) each(token);
  }

  /// The nodes below the node of these bytes, as [begin, end).
  std::pair<std::uint32_t, std::uint32_t> below(std::string_view bytes) const {
    std::uint32_t begin = 0, end = static_cast<std::uint32_t>(nodes.size());
    for (const char letter : bytes) {
      const auto byte = static_cast<std::uint8_t>(letter);
      while (begin < end && nodes[begin].byte != byte) begin = nodes[begin].end;
      if (begin >= end) return {0, 0};
      end = nodes[begin].end;
      ++begin;
    }
    return {begin, end};
  }

  /// Cuts a text behind another into tokens: as the tokenizer does, or else by longest tokens. May end early.
  std::vector<Token> cut(std::string_view before, std::string_view text) const {
    if (tokenizer) {
      // Behind a line feed, tokenizers that add a space to the beginning of a text do not add it to this one.
      for (const std::string_view beginning : {before, std::string_view(), std::string_view("\n")}) {
        const std::string whole = std::string(beginning).append(text);
        const TextPart part{whole, true};
        std::vector<Token> made = tokenizer->encode(std::span(&part, 1), false);
        std::size_t first = made.size(), rest = text.size();
        const auto fits = [&](Token token) {
          const std::string& bytes = tokens[static_cast<std::size_t>(token)];
          return !bytes.empty() && bytes.size() <= rest && text.substr(rest - bytes.size(), bytes.size()) == bytes;
        };
        for (; rest > 0 && first > 0 && fits(made[first - 1]); --first) {
          rest -= tokens[static_cast<std::size_t>(made[first - 1])].size();
        }
        if (rest > 0) continue;
        made.erase(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(first));
        return made;
      }
    }
    std::vector<Token> made;
    for (Token longest = 0; !text.empty() && longest >= 0;) {
      longest = -1;
      std::uint32_t begin = 0, end = static_cast<std::uint32_t>(nodes.size());
      for (const char letter : text) {
        while (begin < end && nodes[begin].byte != static_cast<std::uint8_t>(letter)) begin = nodes[begin].end;
        if (begin >= end) break;
        if (nodes[begin].token >= 0) longest = nodes[begin].token;
        end = nodes[begin].end;
        ++begin;
      }
      if (longest < 0) break;
      made.push_back(longest);
      text.remove_prefix(tokens[static_cast<std::size_t>(longest)].size());
    }
    return made;
  }

  TrieState(std::vector<std::string> bytes, std::span<const Token> end_tokens,
            std::optional<Tokenizer> of = std::nullopt)
      : tokens(std::move(bytes)), ends(end_tokens.begin(), end_tokens.end()), tokenizer(std::move(of)) {
    for (const Token end : ends) {
      if (end >= 0 && static_cast<std::size_t>(end) >= tokens.size()) tokens.resize(static_cast<std::size_t>(end) + 1);
    }
    std::erase_if(ends, [](Token end) { return end < 0; });
    build();
    find_string_tokens();
  }

 private:
  void build() {
    next_same.assign(tokens.size(), -1);
    std::vector<Token> order;
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      if (!tokens[token].empty()) order.push_back(static_cast<Token>(token));
    }
    const auto bytes = [this](Token token) -> const std::string& { return tokens[static_cast<std::size_t>(token)]; };
    std::sort(order.begin(), order.end(), [&](Token a, Token b) {
      const int compared = bytes(a).compare(bytes(b));
      return compared != 0 ? compared < 0 : a > b;
    });
    std::vector<std::uint32_t> open;  // nodes on the path
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Token token = order[i];
      const std::string& text = bytes(token);
      if (i > 0 && text == bytes(order[i - 1])) {
        next_same[static_cast<std::size_t>(token)] = nodes[open.back()].token;
        nodes[open.back()].token = token;
        continue;
      }
      std::size_t common = 0;
      while (common < open.size() && common < text.size() &&
             nodes[open[common]].byte == static_cast<unsigned char>(text[common])) {
        ++common;
      }
      close(open, common);
      for (; common < text.size(); ++common) {
        open.push_back(static_cast<std::uint32_t>(nodes.size()));
        nodes.push_back({0, static_cast<std::uint32_t>(common + 1), -1, static_cast<std::uint8_t>(text[common])});
      }
      nodes[open.back()].token = token;
      deepest = std::max(deepest, static_cast<std::uint32_t>(text.size()));
    }
    close(open, 0);
  }

  void close(std::vector<std::uint32_t>& open, std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes[open.back()].end = static_cast<std::uint32_t>(nodes.size());
  }

  void find_string_tokens() {
    Expressions expressions{GrammarLimits{}};
    Characters characters(expressions, Spelling::json);
    const Expression boundary = characters.any_text();
    Automaton automaton(expressions);
    struct Place {
      Expression state;
      std::uint32_t characters;
    };
    std::vector<Place> path(deepest + std::size_t{1});
    path[0] = {boundary, 0};
    std::vector<std::pair<std::uint32_t, std::uint32_t>> counted;  // characters, node
    std::uint32_t most = 0;
    for (std::uint32_t i = 0; i < nodes.size();) {
      const TrieNode& node = nodes[i];
      const Place& before = path[node.depth - 1];
      if (before.state == boundary && node.byte == '"') {
        strings.closings.push_back({i, before.characters});
        i = node.end;
        continue;
      }
      const Expression state = automaton.step(before.state, node.byte);
      if (state == nothing) {
        i = node.end;
        continue;
      }
      path[node.depth] = {state, before.characters + (state == boundary ? 1 : 0)};
      if (node.token >= 0) {
        const std::uint32_t needed = path[node.depth].characters + (state == boundary ? 0 : 1);
        counted.emplace_back(needed, i);
        most = std::max(most, needed);
      }
      ++i;
    }
    constexpr std::uint32_t most_counted = 256;  // longer tokens are rare: see `inside`
    most = std::min(most, most_counted);
    strings.inside.assign(most + std::size_t{1}, Bits(words()));
    for (const auto& [needed, index] : counted) {
      Bits& bits = strings.inside[std::min(needed, most)];
      each_token(nodes[index], [&bits](Token token) { set_bit(bits, token); });
    }
    for (std::size_t n = 1; n < strings.inside.size(); ++n) unite(strings.inside[n], strings.inside[n - 1]);
    longest_counted = counted.empty() ? 0 : std::max_element(counted.begin(), counted.end())->first;
  }

 public:
  std::uint32_t longest_counted = 0;  // characters of the longest token inside of a string
};

inline std::vector<std::string> ordinary_tokens(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens(static_cast<std::size_t>(tokenizer.vocab()));
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto token = static_cast<Token>(id);
    if (tokenizer.is_token(token) && !tokenizer.is_special(token)) tokens[id] = tokenizer.bytes(token);
  }
  return tokens;
}

}}}

namespace slm { inline namespace v0_1 {

SLM_CONSTRUCTOR TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::span<const Token> ends)
    : state_(std::make_shared<const grammar::TrieState>(grammar::ordinary_tokens(tokenizer), ends, tokenizer)) {}

SLM_CONSTRUCTOR TokenTrie::TokenTrie(const std::vector<std::string>& tokens, std::span<const Token> ends)
    : state_(std::make_shared<const grammar::TrieState>(tokens, ends)) {}

SLM_INLINE std::size_t TokenTrie::size() const { return state_->tokens.size(); }

SLM_INLINE const std::string& TokenTrie::bytes(Token token) const {
  static const std::string none;
  if (token < 0 || static_cast<std::size_t>(token) >= state_->tokens.size()) return none;
  return state_->tokens[static_cast<std::size_t>(token)];
}

SLM_INLINE std::span<const Token> TokenTrie::ends() const { return state_->ends; }

SLM_INLINE bool TokenTrie::is_end(Token token) const {
  return std::find(state_->ends.begin(), state_->ends.end(), token) != state_->ends.end();
}

}}
