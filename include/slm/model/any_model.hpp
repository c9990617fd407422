// AnyModel: any LanguageModel behind one virtual call per step, so that draft x target does not multiply code.
#pragma once

#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "slm/model/language_model.hpp"

namespace slm {

class AnyModel {
 public:
  template <class M>
  requires(!std::is_same_v<std::remove_cvref_t<M>, AnyModel> && LanguageModel<std::remove_cvref_t<M>>)
      AnyModel(M&& model)
      : model_(std::make_unique<Holder<std::remove_cvref_t<M>>>(std::forward<M>(model))) {}

  const ModelInfo& info() const { return model_->info(); }
  int length() const { return model_->length(); }
  View<const float, 2> extend(std::span<const Token> tokens, int rows) { return model_->extend(tokens, rows); }
  void truncate(int length) { model_->truncate(length); }
  bool chooses() const { return model_->chooses(); }
  std::span<const Token> choose(std::span<const Token> tokens, int rows, const Draw& draw) {
    return model_->choose(tokens, rows, draw);
  }
  std::span<const Token> propose(std::span<const Token> tokens, int count, const Draw& draw) {
    return model_->propose(tokens, count, draw);
  }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual const ModelInfo& info() const = 0;
    virtual int length() const = 0;
    virtual View<const float, 2> extend(std::span<const Token> tokens, int rows) = 0;
    virtual void truncate(int length) = 0;
    virtual bool chooses() const = 0;
    virtual std::span<const Token> choose(std::span<const Token> tokens, int rows, const Draw& draw) = 0;
    virtual std::span<const Token> propose(std::span<const Token> tokens, int count, const Draw& draw) = 0;
  };

  template <class M>
  struct Holder final : Interface {
    template <class From>
    explicit Holder(From&& from) : model(std::forward<From>(from)) {}
    const ModelInfo& info() const override { return model.info(); }
    int length() const override { return model.length(); }
    View<const float, 2> extend(std::span<const Token> tokens, int rows) override { return model.extend(tokens, rows); }
    void truncate(int length) override { model.truncate(length); }
    bool chooses() const override { return slm::chooses(model); }
    std::span<const Token> choose([[maybe_unused]] std::span<const Token> tokens, [[maybe_unused]] int rows,
                                  [[maybe_unused]] const Draw& draw) override {
      if constexpr (ChoosingModel<M>) return model.choose(tokens, rows, draw);
      return {};
    }
    std::span<const Token> propose([[maybe_unused]] std::span<const Token> tokens, [[maybe_unused]] int count,
                                   [[maybe_unused]] const Draw& draw) override {
      if constexpr (ChoosingModel<M>) return model.propose(tokens, count, draw);
      return {};
    }
    M model;
  };

  std::unique_ptr<Interface> model_;
};

static_assert(ChoosingModel<AnyModel>);

}  // namespace slm
