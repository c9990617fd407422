// A small GGUF model that tests can change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "support/gguf_builder.hpp"

namespace slm::testing {

/// A small valid model of any architecture with Llama's names and sizes, tensors in F32. `change` may remove or replace
/// items; further pairs and tensors are added last.
struct SmallModel {
  std::string architecture = "llama";
  int layers = 1, hidden = 8, ffn = 16, heads = 2, kv_heads = 1, vocab = 10;
  std::function<void(GgufBuilder&)> more = [](GgufBuilder&) {};
  std::string without;  // a tensor or key

  GgufBuilder build() const {
    GgufBuilder file;
    const auto pair = [&](const std::string& key, int value) {
      if (key != without) file.u32(text(architecture, ".", key), static_cast<std::uint32_t>(value));
    };
    file.string("general.architecture", architecture);
    pair("context_length", 64), pair("embedding_length", hidden), pair("block_count", layers);
    pair("feed_forward_length", ffn), pair("attention.head_count", heads);
    pair("attention.head_count_kv", kv_heads);
    if (without != "epsilon") file.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    more(file);
    const auto tensor = [&](const std::string& name, int in, int out) {
      if (name == without) return;
      std::vector<float> values(static_cast<std::size_t>(in * std::max(out, 1)));
      for (float& value : values) value = 0.01f * static_cast<float>(++count);
      std::vector<std::uint64_t> dims{static_cast<std::uint64_t>(in)};
      if (out > 0) dims.push_back(static_cast<std::uint64_t>(out));
      file.tensor(name, dims, 0, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    tensor("token_embd.weight", hidden, vocab), tensor("output_norm.weight", hidden, 0);
    for (int l = 0; l < layers; ++l) {
      const std::string layer = text("blk.", l, ".");
      const int head = hidden / heads;
      tensor(layer + "attn_norm.weight", hidden, 0), tensor(layer + "ffn_norm.weight", hidden, 0);
      tensor(layer + "attn_q.weight", hidden, hidden), tensor(layer + "attn_k.weight", hidden, head * kv_heads);
      tensor(layer + "attn_v.weight", hidden, head * kv_heads), tensor(layer + "attn_output.weight", hidden, hidden);
      tensor(layer + "ffn_gate.weight", hidden, ffn), tensor(layer + "ffn_up.weight", hidden, ffn);
      tensor(layer + "ffn_down.weight", ffn, hidden);
    }
    count = 0;
    return file;
  }

 private:
  mutable int count = 0;
};

}  // namespace slm::testing
