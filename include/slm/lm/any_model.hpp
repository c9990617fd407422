// AnyModel: type erasure of a LanguageModel, with one virtual call per step. It keeps combinations of draft and target
// types from multiplying code.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// A handle: copies share the weights.
class AnyModel {
 public:
  template <class M>
  requires(!std::is_same_v<std::remove_cvref_t<M>, AnyModel> && LanguageModel<std::remove_cvref_t<M>>)
      AnyModel(M&& model)
      : model_(std::make_shared<const Holder<std::remove_cvref_t<M>>>(std::forward<M>(model))) {}

  const ModelInfo& info() const { return model_->info(); }
  Sequence sequence() const { return model_->sequence(); }
  void forward(Batch& batch) const { model_->forward(batch); }

  KvPool pool(KvPoolOptions options = {}) const { return model_->pool(options); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual const ModelInfo& info() const = 0;
    virtual Sequence sequence() const = 0;
    virtual void forward(Batch& batch) const = 0;
    virtual KvPool pool(KvPoolOptions options) const = 0;
  };

  template <class M>
  struct Holder final : Interface {
    template <class From>
    explicit Holder(From&& from) : model(std::forward<From>(from)) {}
    const ModelInfo& info() const override { return model.info(); }
    Sequence sequence() const override { return model.sequence(); }
    void forward(Batch& batch) const override { model.forward(batch); }
    KvPool pool(KvPoolOptions options) const override { return model.pool(options); }
    M model;
  };

  std::shared_ptr<const Interface> model_;
};

static_assert(LanguageModel<AnyModel>);

}}
