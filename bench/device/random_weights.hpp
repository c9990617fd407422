// Random weights in memory. Speed does not depend on their values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/subject.hpp"
#include "slm/backend/cpu/buffer.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm::bench {

/// Random tensors of one dense type. With `apart`, each has separate bytes, for backends that use weights in place.
/// Without it, all tensors share the beginning of one buffer.
class RandomWeights {
 public:
  static constexpr std::int64_t group = 128;

  /// dense: elements of all dense tensors together if they are apart, else of the largest. int4: elements of the
  /// largest 4-bit tensor; its bytes are always shared, since every backend packs them.
  RandomWeights(DType type, bool apart, std::size_t dense, std::size_t int4, float scale)
      : type_(type),
        apart_(apart),
        dense_(dense + (apart ? spare : 0)),
        ones_(8192, bits_of(type, 1)),
        codes_(int4 / 8),
        zeros_(int4 / 8 / group, 0x88888888u),
        scales_(int4 / group, from_float<half_t>(scale / 16)) {
    std::vector<std::uint16_t> pattern(std::min(dense_.size(), std::size_t{1} << 20));
    std::uint64_t state = 1;
    const auto random = [&state] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 32; };
    for (std::uint16_t& bits : pattern) {
      bits = bits_of(type, (static_cast<float>(random()) * 0x1p-32f - 0.5f) * scale);
    }
    for (std::size_t at = 0; at < dense_.size(); at += pattern.size()) {
      std::memcpy(dense_.data() + at, pattern.data(), 2 * std::min(pattern.size(), dense_.size() - at));
    }
    for (std::uint32_t& word : codes_) word = static_cast<std::uint32_t>(random());
  }

  Tensor dense(std::string name, std::vector<std::int64_t> shape) {
    Tensor tensor{std::move(name), type_, std::move(shape), reinterpret_cast<const std::byte*>(dense_.data() + used_),
                  0};
    const auto elements = static_cast<std::size_t>(tensor.elements());
    tensor.size_bytes = 2 * elements;
    if (apart_) used_ += (elements + line - 1) / line * line;
    return tensor;
  }

  /// The weight of a norm, all ones.
  Tensor ones(std::string name, std::int64_t width) const { return tensor(std::move(name), type_, {width}, ones_); }

  Tensor codes(std::string name, std::int64_t out, std::int64_t in) const {
    return tensor(std::move(name), DType::i32, {in, out / 8}, codes_);
  }
  Tensor zeros(std::string name, std::int64_t out, std::int64_t in) const {
    return tensor(std::move(name), DType::i32, {in / group, out / 8}, zeros_);
  }
  Tensor scales(std::string name, std::int64_t out, std::int64_t in) const {
    return tensor(std::move(name), DType::f16, {in / group, out}, scales_);
  }

 private:
  static constexpr std::size_t line = 32;                         // elements of a cache line
  static constexpr std::size_t spare = line * std::size_t{4096};  // for the ends of tensors

  static std::uint16_t bits_of(DType type, float value) {
    return type == DType::bf16 ? from_float<bfloat16_t>(value).bits : from_float<half_t>(value).bits;
  }

  template <class T>
  static Tensor tensor(std::string name, DType type, std::vector<std::int64_t> shape, const std::vector<T>& data) {
    Tensor tensor{std::move(name), type, std::move(shape), reinterpret_cast<const std::byte*>(data.data()), 0};
    tensor.size_bytes = static_cast<std::size_t>(tensor.elements()) * sizeof(T);
    return tensor;
  }

  DType type_;
  bool apart_;
  backend::PageBuffer<std::uint16_t> dense_;  // small pages, as a mapped file has
  std::vector<std::uint16_t> ones_;
  std::vector<std::uint32_t> codes_, zeros_;
  std::vector<half_t> scales_;
  std::size_t used_ = 0;
};

/// A subject as a checkpoint. Embedding and head of a 4-bit model are F16, as in AutoAWQ's files.
class RandomCheckpoint {
 public:
  RandomCheckpoint(const Subject& subject, int context, bool apart) {
    const ModelConfig& shape = subject.shape;
    ModelSettings settings = subject.settings;
    settings.context = context;
    const TensorNames names(shape, settings, subject.family->names);
    // Calls visit(name, whether it is a 4-bit tensor) for each tensor. As in AutoAWQ's files, heads and routers are
    // not.
    const auto for_each = [&](const auto& visit) {
      names.for_each([&](Role role, int, const auto& weights, const auto& biases) {
        if (is_optional(role)) return;
        const bool int4 = subject.int4() && is_linear(role) && role != Role::head;
        for (const TensorName& weight : weights) visit(weight, int4);
        for (const TensorName& bias : biases) visit(bias, false);
      });
    };
    std::size_t all = 0, largest = 0, largest_int4 = 0;
    for_each([&](const TensorName& name, bool int4) {
      std::size_t elements = 1;
      for (const std::int64_t extent : name.shape) elements *= static_cast<std::size_t>(extent);
      if (int4) {
        largest_int4 = std::max(largest_int4, elements);
      } else {
        all += elements;
        largest = std::max(largest, elements);
      }
    });
    weights_ = std::make_unique<RandomWeights>(subject.int4() ? DType::f16 : DType::bf16, apart, apart ? all : largest,
                                               largest_int4, std::sqrt(12.0f / static_cast<float>(shape.hidden)));
    std::vector<Tensor> tensors;
    for_each([&](const TensorName& name, bool int4) {
      if (name.shape.size() == 1) {
        tensors.push_back(weights_->ones(name.name, name.shape[0]));
        return;
      }
      if (!int4) {
        tensors.push_back(weights_->dense(name.name, name.shape));
        return;
      }
      const std::int64_t out = name.shape[0], in = name.shape[1];
      tensors.push_back(weights_->codes(name.module() + ".qweight", out, in));
      tensors.push_back(weights_->zeros(name.module() + ".qzeros", out, in));
      tensors.push_back(weights_->scales(name.module() + ".scales", out, in));
    });
    checkpoint_ = std::make_shared<const Checkpoint>(
        subject.model, ModelDescription{.family = subject.family, .config = shape, .settings = settings},
        QuantizationSettings{}, std::move(tensors));
  }

  /// Valid as long as this object.
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }

 private:
  std::unique_ptr<RandomWeights> weights_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace slm::bench
