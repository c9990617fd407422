// StopMatcher: finds stop strings in a text that arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Lets text through except for what could still become a stop string. Of several stop strings the one that ends first
/// counts; of those that end together, the longest. Work is linear in the text (an Aho-Corasick automaton).
class StopMatcher {
 public:
  StopMatcher() : StopMatcher(std::vector<std::string>{}) {}

  /// Empty stop strings are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops) {
    nodes_.emplace_back();
    for (const std::string& stop : stops) insert(stop);
    link();
  }

  /// Takes the next piece and returns the text that may be shown now: never any part of the stop string that ends it.
  /// After the stop everything is swallowed. Stop strings that end in a piece that may not stop the text do not count.
  std::string push(std::string_view piece, bool may_stop = true) {
    if (stopped_) return {};
    held_ += piece;
    for (std::size_t read = held_.size() - piece.size(); read < held_.size(); ++read) {
      state_ = step(state_, held_[read]);
      if (const std::size_t length = node(state_).match; length != 0 && may_stop) {
        stopped_ = true;
        found_ = held_.substr(read + 1 - length, length);
        held_.resize(read + 1 - length);
        return take(held_.size());
      }
    }
    return take(held_.size() - node(state_).depth);
  }

  /// The end of the text: returns what was held back.
  std::string finish() {
    state_ = 0;
    return take(held_.size());
  }

  bool stopped() const { return stopped_; }
  /// The stop string that ended the text.
  const std::string& found() const { return found_; }
  /// False when there is nothing to look for.
  bool active() const { return nodes_.size() > 1; }

 private:
  struct Node {
    char byte = 0;
    std::int32_t first_child = -1, next_sibling = -1;
    std::int32_t fallback = 0;  // the longest proper suffix that begins a stop string
    std::size_t depth = 0;      // bytes read since the root
    std::size_t match = 0;      // length of the longest stop string that ends here
  };

  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  Node& node(std::int32_t index) { return nodes_[static_cast<std::size_t>(index)]; }

  std::int32_t child(std::int32_t parent, char byte) const {
    std::int32_t index = node(parent).first_child;
    while (index >= 0 && node(index).byte != byte) index = node(index).next_sibling;
    return index;
  }

  std::int32_t step(std::int32_t state, char byte) const {
    for (;; state = node(state).fallback) {
      if (const std::int32_t next = child(state, byte); next >= 0) return next;
      if (state == 0) return 0;
    }
  }

  void insert(std::string_view stop) {
    std::int32_t state = 0;
    for (const char byte : stop) {
      std::int32_t next = child(state, byte);
      if (next < 0) {
        next = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({byte, -1, node(state).first_child, 0, node(state).depth + 1, 0});
        node(state).first_child = next;
      }
      state = next;
    }
    node(state).match = stop.size();
  }

  /// Fallbacks breadth first: a node's is found through its parent's, which is shallower.
  void link() {
    std::vector<std::int32_t> order{0};
    for (std::size_t done = 0; done < order.size(); ++done) {
      const std::int32_t parent = order[done];
      for (std::int32_t index = node(parent).first_child; index >= 0; index = node(index).next_sibling) {
        order.push_back(index);
        if (parent != 0) node(index).fallback = step(node(parent).fallback, node(index).byte);
        if (node(index).match == 0) node(index).match = node(node(index).fallback).match;
      }
    }
  }

  std::string take(std::size_t length) {
    std::string out = held_.substr(0, length);
    held_.erase(0, length);
    return out;
  }

  std::vector<Node> nodes_;
  std::int32_t state_ = 0;
  std::string held_;  // not yet shown; its last depth bytes spell the state
  std::string found_;
  bool stopped_ = false;
};

}}
