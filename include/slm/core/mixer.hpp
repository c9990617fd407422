// Mixer: the shape of a layer's recurrence, which replaces attention or runs beside it. LayerSet: a set of layers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// The recurrence of a layer. Its state has a fixed size, in contrast to keys and values.
enum class MixerKind {
  none,
  short_conv,  // C * conv(B * x)
  delta_net,   // gated delta rule: S = e^g S; S += k (beta (v - S^T k))^T; o = S^T q
  mamba2,      // h = e^(dt A) h + (dt x) B^T; y = h C + D x
};

/// Where a Mamba-2 mixer normalises its output.
enum class MixerNorm {
  none,         // y * silu(z)
  after_gate,   // norm(y * silu(z))
  before_gate,  // norm(y) * silu(z)
};

constexpr std::string_view name_of(MixerKind kind) {
  switch (kind) {
    case MixerKind::none: return "none";
    case MixerKind::short_conv: return "short_conv";
    case MixerKind::delta_net: return "delta_net";
    case MixerKind::mamba2: return "mamba2";
  }
  return "?";
}

constexpr std::string_view name_of(MixerNorm norm) {
  switch (norm) {
    case MixerNorm::none: return "none";
    case MixerNorm::after_gate: return "after_gate";
    case MixerNorm::before_gate: return "before_gate";
  }
  return "?";
}

/// The shape of the recurrent layers of a model.
struct Mixer {
  MixerKind kind = MixerKind::none;
  int taps = 0;            // of the causal convolution, the newest column included
  int heads = 0;           // value heads; short_conv: 1
  int head_dim = 0;        // width of a value head; short_conv: the model's width
  int groups = 0;          // key heads, or groups of B and C: head h uses group h * groups / heads
  int state = 0;           // width of a key, or of B and C
  bool bias = false;       // of the projections
  bool conv_bias = false;  // of the convolution
  bool tiled = false;      // delta_net: head h uses key head h % groups
  MixerNorm norm = MixerNorm::after_gate;

  constexpr bool operator==(const Mixer&) const = default;

  constexpr std::int64_t inner() const { return std::int64_t{heads} * head_dim; }
  constexpr std::int64_t keys() const { return std::int64_t{groups} * state; }
  /// Channels of the convolution.
  constexpr std::int64_t channels() const { return inner() + (kind == MixerKind::short_conv ? 0 : 2 * keys()); }
  /// Outputs of the input projection. short_conv: B | C | x. delta_net: q | k | v | z | b | a. mamba2: z | x | B | C |
  /// dt.
  constexpr std::int64_t projected() const {
    if (kind == MixerKind::short_conv) return 3 * inner();
    return channels() + inner() + (kind == MixerKind::delta_net ? 2 : 1) * std::int64_t{heads};
  }
  /// Floats of one layer's state: the last columns of the convolution [taps - 1, channels], then a matrix per head.
  /// delta_net: [heads, state, head_dim]. mamba2: [heads, head_dim, state].
  constexpr std::int64_t conv_floats() const { return (taps - 1) * channels(); }
  constexpr std::int64_t matrix_floats() const { return kind == MixerKind::short_conv ? 0 : inner() * state; }
  constexpr std::int64_t state_floats() const { return conv_floats() + matrix_floats(); }
};

/// Returns the fault of a mixer's shape, or an empty string. The bounds keep every product inside 64 bits.
constexpr std::string_view fault_of(const Mixer& mixer) {
  const auto within = [](int value, int limit) { return value >= 1 && value <= limit; };
  if (mixer.kind == MixerKind::none) return mixer == Mixer{} ? "" : "a mixer needs a kind";
  if (!within(mixer.taps, 64)) return "the mixer's taps must be 1..64";
  if (!within(mixer.heads, 4096)) return "the mixer's heads must be 1..4096";
  if (!within(mixer.head_dim, 1 << 20)) return "the mixer's head_dim must be 1..1048576";
  if (mixer.kind == MixerKind::short_conv) return {};
  if (!within(mixer.head_dim, 4096)) return "the mixer's head_dim must be 1..4096";
  if (!within(mixer.groups, mixer.heads)) return "the mixer's groups must be 1..heads";
  if (mixer.heads % mixer.groups != 0) return "the mixer's heads must be a multiple of its groups";
  if (!within(mixer.state, 4096)) return "the mixer's state must be 1..4096";
  return {};
}

/// A set of a model's layers.
class LayerSet {
 public:
  static constexpr int most_layers = 1024;

  constexpr LayerSet() = default;
  constexpr LayerSet(std::initializer_list<int> layers) {
    for (const int layer : layers) add(layer);
  }

  constexpr void add(int layer) { word(layer) |= bit(layer); }
  constexpr bool has(int layer) const { return (bits_[static_cast<std::size_t>(layer) / 64] & bit(layer)) != 0; }
  constexpr bool empty() const { return *this == LayerSet{}; }
  /// Whether all members are below a number of layers.
  constexpr bool within(int layers) const {
    for (int layer = layers; layer < most_layers; ++layer) {
      if (has(layer)) return false;
    }
    return true;
  }
  constexpr bool operator==(const LayerSet&) const = default;

 private:
  constexpr std::uint64_t& word(int layer) { return bits_[static_cast<std::size_t>(layer) / 64]; }
  static constexpr std::uint64_t bit(int layer) { return std::uint64_t{1} << (layer % 64); }

  std::array<std::uint64_t, most_layers / 64> bits_{};
};

}}
