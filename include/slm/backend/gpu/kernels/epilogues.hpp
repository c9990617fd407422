// Epilogues of products: add to the residual stream, activate, gate, or rotate and store in the KV cache.
//
// apply(args, panel, i, row, a, b): a and b are the sums of output i of the panel's tiles a and b. b is valid only if
// panel.has_b.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/core/architecture.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

SLM_DEVICE float activate(const Activation& activation, float z) {
  switch (activation.kind) {
    case ActivationKind::identity: return z;
    case ActivationKind::silu: return z / (1.0f + expf(-z));
    case ActivationKind::gelu_erf: return 0.5f * z * (1.0f + erff(z * 0.70710678118654752f));
    case ActivationKind::gelu_tanh: {
      const float inner = 0.79788456080286536f * fmaf(0.044715f * z * z, z, z);
      return 0.5f * z * (1.0f + tanhf(inner));
    }
    case ActivationKind::relu: return z < 0 ? 0.0f : z;
    case ActivationKind::relu_squared: return z < 0 ? 0.0f : z * z;
    case ActivationKind::xielu: {
      if (z > 0) return fmaf(activation.alpha_p * z, z, activation.beta * z);
      const float less_one = expm1f(z < activation.epsilon ? z : activation.epsilon);
      return fmaf(activation.alpha_n, less_one - z, activation.beta * z);
    }
    case ActivationKind::soft_cap: return activation.cap * tanhf(z / activation.cap);
  }
  return z;
}

/// x += factor * (sum + bias)
struct AddToRows {
  struct Args {
    Memory<float> x;           // [rows, width]
    Memory<const float> bias;  // [width]; may be empty
    int width;
    float factor = 1;
  };
  static SLM_DEVICE void one(const Args& args, int output, int row, float v) {
    if (output >= args.width) return;
    if (args.bias) v += args.bias[output];
    float& x = args.x[std::int64_t{row} * args.width + output];
    x = fmaf(args.factor, v, x);
  }
  static SLM_DEVICE void apply(const Args& args, const Panel& panel, int i, int row, float a, float b) {
    one(args, panel.a * tile_height + i, row, a);
    if (panel.has_b) one(args, panel.b * tile_height + i, row, b);
  }
};

/// out = activation(sum + bias) / divisor
struct Activated {
  struct Args {
    Memory<float> out;            // [rows, width], rows `stride` elements apart
    Memory<const float> bias;     // [width]; may be empty
    Memory<const float> divisor;  // [width]; may be empty
    int width, stride;
    Activation activation;
  };
  static SLM_DEVICE void one(const Args& args, int output, int row, float v) {
    if (output >= args.width) return;
    if (args.bias) v += args.bias[output];
    v = activate(args.activation, v);
    args.out[std::int64_t{row} * args.stride + output] = args.divisor ? v / args.divisor[output] : v;
  }
  static SLM_DEVICE void apply(const Args& args, const Panel& panel, int i, int row, float a, float b) {
    one(args, panel.a * tile_height + i, row, a);
    if (panel.has_b) one(args, panel.b * tile_height + i, row, b);
  }
};

/// out = activation(gate + bias) * (up + bias); gate and up are the tiles of a panel.
struct Gated {
  struct Args {
    Memory<float> out;         // [rows, width]
    Memory<const float> bias;  // [2 * width]; may be empty
    int width;                 // a multiple of tile_height
    Activation activation;
  };
  static SLM_DEVICE void apply(const Args& args, const Panel& panel, int i, int row, float a, float b) {
    const int output = panel.a * tile_height + i;
    if (args.bias) {
      a += args.bias[output];
      b += args.bias[args.width + output];
    }
    args.out[std::int64_t{row} * args.width + output] = activate(args.activation, args.activation.factor * a) * b;
  }
};

/// Destinations of queries, keys and values.
struct QkvArgs {
  Memory<float> q;  // [rows, query * dim], rows q_stride elements apart
  KvPages pages;
  Memory<const StepRow> rows;                // [rows]
  Memory<const float> inverse_frequency[2];  // [rotating / 2]; may be empty
  Memory<const float> bias;                  // [(query + 2 * kv) * dim]; may be empty
  int query, kv, dim;
  int q_stride;
  int rotating;  // leading dimensions of a head
  float factor;  // factor of cosines and sines
  float clip;    // 0: none
  bool pairs;    // dimensions 2i and 2i + 1 rotate together

  /// Stores output o of the product for a row, except in int8.
  SLM_DEVICE void put(int o, int row, float v) const { put(rows[row], o, row, v); }
  SLM_DEVICE void put(const StepRow& of, int o, int row, float v) const {
    if (o < query * dim) {
      q[std::int64_t{row} * q_stride + o] = v;
    } else if (of.sequence >= 0) {
      const int at = of.position % page_positions * dim + o % dim;
      if (pages.format == KvFormat::bf16) {
        head_of<bfloat16_t>(of, o / dim).numbers[at] = kv_element<bfloat16_t>(v);
      } else {
        head_of<half_t>(of, o / dim).numbers[at] = kv_element<half_t>(v);
      }
    }
  }

  /// Location of head `head`, a key or a value, in its page.
  template <class Element>
  SLM_DEVICE KvHead<Element> head_of(const StepRow& of, int head) const {
    const bool key = head < query + kv;
    return pages.head<Element>(pages.table(of)[of.position / page_positions],
                               key ? pages.layer.keys : pages.layer.values, key ? head - query : head - query - kv);
  }

  struct Pair {
    float first, second;
  };
  /// The elements of pair d of a head, d < rotating / 2.
  SLM_DEVICE int first_of(int d) const { return pairs ? 2 * d : d; }
  SLM_DEVICE int second_of(int d) const { return pairs ? 2 * d + 1 : d + rotating / 2; }
  /// Rotates pair d of a head.
  SLM_DEVICE Pair rotated(const StepRow& of, int d, float a, float b) const {
    const float angle =
        static_cast<float>(of.position) * (of.rope == 0 ? inverse_frequency[0] : inverse_frequency[1])[d];
    const float cosine = cosf(angle) * factor, sine = sinf(angle) * factor;
    return {fmaf(a, cosine, -(b * sine)), fmaf(b, cosine, a * sine)};
  }

  SLM_DEVICE float shaped(int o, float v) const {
    if (bias) v += bias[o];
    return clip == 0 ? v : v > clip ? clip : v < -clip ? -clip : v;
  }
};

/// For heads that rotate by whole pairs of tiles, or not at all, and have no scale. Panels are pairs exactly where
/// outputs rotate.
struct QueriesKeysValues {
  using Args = QkvArgs;
  static SLM_DEVICE void apply(const Args& args, const Panel& panel, int i, int row, float a, float b) {
    const int first = panel.a * tile_height + i, second = panel.b * tile_height + i;
    const int all = (args.query + 2 * args.kv) * args.dim;
    if (args.rotating != 0 && first < (args.query + args.kv) * args.dim && first % args.dim < args.rotating / 2) {
      const StepRow of = args.rows[row];
      const QkvArgs::Pair pair = args.rotated(of, first % args.dim, args.shaped(first, a), args.shaped(second, b));
      args.put(of, first, row, pair.first);
      args.put(of, second, row, pair.second);
      return;
    }
    if (first < all) args.put(first, row, args.shaped(first, a));
    if (panel.has_b && second < all) args.put(second, row, args.shaped(second, b));
  }
};

}}}
