// The C interface: models, adapters, and sessions.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "handles.hpp"
#include "slm/adapters.hpp"
#include "slm/backend/select.hpp"
#include "slm/model/estimate.hpp"
#include "slm/model/load.hpp"

struct slm_session {
  explicit slm_session(slm::AnyModel of) : model(std::move(of)), sequence(model.sequence()) {}

  slm::AnyModel model;
  slm::Sequence sequence;
  slm::Batch batch;
  std::atomic<bool> taken{false};
};

namespace c_api { namespace {

std::optional<slm::KvFormat> cache_format_of(std::int32_t format) {
  switch (format) {
    case SLM_KV_DEFAULT: return {};
    case SLM_KV_F32: return slm::KvFormat::f32;
    case SLM_KV_F16: return slm::KvFormat::f16;
    case SLM_KV_BF16: return slm::KvFormat::bf16;
    case SLM_KV_INT8: return slm::KvFormat::int8;
    default: break;
  }
  throw misuse("c.value", slm::text("expected one of SLM_KV_..., found ", format), "Set cache_format to one of them");
}

/// The executor of a C program.
class CallbackExecutor : public slm::Executor {
 public:
  explicit CallbackExecutor(const slm_executor& callbacks) : callbacks_(callbacks) {}

  int threads() const override { return callbacks_.threads; }
  void run(int parts, Part part) override {
    const auto call = [](void* loop, std::int32_t index) { (*static_cast<const Part*>(loop))(index); };
    const int status = callbacks_.run(callbacks_.user, parts, call, &part);
    if (status != 0) throw std::runtime_error(slm::text("status ", status));
  }

 private:
  slm_executor callbacks_;
};

slm::DefaultBackend device_of(const slm_load_options& options) {
  if (options.executor != nullptr) {
    const auto callbacks = read_struct(options.executor, sizeof(slm_executor), "slm_executor");
    if (callbacks.run == nullptr) throw misuse("c.null", "expected run in slm_executor, found NULL", "Set it");
    return slm::DefaultBackend({.threads = options.threads, .executor = std::make_shared<CallbackExecutor>(callbacks)});
  }
  if (options.threads == 0) return slm::backend::default_device<slm::DefaultBackend>();
  return slm::DefaultBackend({.threads = options.threads});
}

slm::RowResult rows_of(std::int32_t kind) {
  switch (kind) {
    case SLM_ROWS_NOTHING: return slm::RowResult::nothing;
    case SLM_ROWS_LOGITS: return slm::RowResult::logits;
    case SLM_ROWS_HIDDEN: return slm::RowResult::hidden;
    default: break;
  }
  throw misuse("c.value", slm::text("expected one of SLM_ROWS_..., found ", kind), "Pass one of them");
}

}}  // namespace c_api

using c_api::guarded;
using c_api::required;

slm_status slm_model_load(const char* path, const slm_load_options* options, slm_model** out) {
  return guarded([&] {
    required(out, "out");
    const auto folder = c_api::path_of(path, "path");
    const auto given = c_api::read_struct(options, offsetof(slm_load_options, executor), "slm_load_options");
    slm::LoadOptions loading{.context = given.context,
                             .cache_format = c_api::cache_format_of(given.cache_format),
                             .head_tokens = given.head_tokens,
                             .bits = given.bits};
    if (given.progress != nullptr) {
      loading.progress = [&](double share) {
        if (given.progress(given.user, share) == 0) return;
        throw slm::Error("c.cancelled", "the callback ended the loading", "Load the model again");
      };
    }
    *out = new slm_model{slm::load(folder, c_api::device_of(given), loading)};
  });
}

slm_status slm_model_get_info(const slm_model* model, slm_model_info* info) {
  return guarded([&] {
    const slm::ModelInfo& of = required(model, "model").model.info();
    c_api::write_struct(info,
                        slm_model_info{.size = 0,
                                       .vocab = of.vocab,
                                       .context = of.context,
                                       .headless = of.headless,
                                       .reserved = 0,
                                       .step_bytes = of.step_bytes},
                        sizeof(slm_model_info), "slm_model_info");
  });
}

void slm_model_free(slm_model* model) { delete model; }

slm_status slm_estimate(const char* path, const slm_estimate_options* options, slm_memory* memory) {
  return guarded([&] {
    const auto given = c_api::read_struct(options, sizeof(slm_estimate_options), "slm_estimate_options");
    const slm::MemoryEstimate found =
        slm::estimate(c_api::path_of(path, "path"),
                      {.context = given.context,
                       .sequences = given.sequences == 0 ? 1 : given.sequences,
                       .kv_format = c_api::cache_format_of(given.cache_format),
                       .draft = given.draft == nullptr ? std::filesystem::path{} : c_api::path_of(given.draft, "draft"),
                       .draft_head_tokens = given.draft_head_tokens,
                       .draft_bits = given.draft_bits});
    c_api::write_struct(memory,
                        slm_memory{.size = 0,
                                   .weights = found.weights,
                                   .mapped = found.mapped,
                                   .cache = found.cache,
                                   .scratch = found.scratch,
                                   .step_bytes = found.step_bytes},
                        sizeof(slm_memory), "slm_memory");
  });
}

slm_status slm_adapter_load(const slm_model* model, const char* folder, slm_adapter** out) {
  return guarded([&] {
    required(out, "out");
    const auto path = c_api::path_of(folder, "folder");
    *out = new slm_adapter{slm::load_adapter(path, required(model, "model").model)};
  });
}

void slm_adapter_free(slm_adapter* adapter) { delete adapter; }

slm_status slm_session_create(const slm_model* model, slm_session** out) {
  return guarded([&] {
    required(out, "out");
    *out = new slm_session(required(model, "model").model);
  });
}

slm_status slm_session_forward(slm_session* session, const slm_token* tokens, size_t count, int32_t kind, size_t rows,
                               const float** values, size_t* width) {
  return guarded([&] {
    slm_session& of = required(session, "session");
    const c_api::Claim claim(of.taken, "slm_session");
    const auto added = c_api::array(tokens, count, "tokens");
    const slm::RowResult result = rows == 0 ? slm::RowResult::nothing : c_api::rows_of(kind);
    const bool reads = result != slm::RowResult::nothing;
    if (reads) {
      required(values, "values");
      required(width, "width");
    }
    if (rows > count || count > std::numeric_limits<std::int32_t>::max()) {
      throw c_api::misuse("c.value", slm::text("expected at most ", count, " rows, found ", rows),
                          "Request at most one row per token");
    }
    of.batch.clear();
    of.batch.add(of.sequence, added, {.result = result, .rows = static_cast<int>(reads ? rows : 1)});
    of.model.forward(of.batch);
    if (!reads) return;
    const auto view = result == slm::RowResult::logits ? of.batch.logits(0) : of.batch.hidden(0);
    *values = view.row(0);
    *width = static_cast<std::size_t>(view.extent(1));
  });
}

slm_status slm_session_length(const slm_session* session, size_t* length) {
  return guarded(
      [&] { required(length, "length") = static_cast<std::size_t>(required(session, "session").sequence.length()); });
}

slm_status slm_session_truncate(slm_session* session, size_t length) {
  return guarded([&] {
    slm_session& of = required(session, "session");
    const c_api::Claim claim(of.taken, "slm_session");
    const auto most = static_cast<std::size_t>(of.sequence.length());
    of.sequence.truncate(static_cast<int>(length > most ? most + 1 : length));  // one too many: it throws
  });
}

void slm_session_free(slm_session* session) { delete session; }
