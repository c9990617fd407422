#include "api/models.hpp"

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "api/asked_model.hpp"

namespace serve {

namespace {

/// The text of an error with the model's name in the place of its path, which clients do not know.
std::string told(const slm::Error& error, const ModelSource& source) {
  std::string message = error.what();
  for (const std::string& path : {source.path, source.draft}) {
    for (std::size_t at = message.find(path); !path.empty() && at != message.npos; at = message.find(path, at)) {
      message.replace(at, path.size(), source.name);
      at += source.name.size();
    }
  }
  return message;
}

Refusal failed_load(const slm::Error& error, const ModelSource& source) {
  return Refusal(500, error.id(),
                 slm::text("The model `", slm::excerpt(source.name), "` cannot be loaded: ", told(error, source)))
      .of("model");
}

}  // namespace

void check_budget(const std::string& name, std::uint64_t bytes, std::uint64_t budget) {
  if (bytes <= budget) return;
  throw slm::Error("serve.model-memory",
                   slm::text("the model ", slm::quote(name), " needs ", bytes,
                             " bytes with its KV cache, but all models together have ", budget),
                   "Raise --model-memory, or lower --cache-memory");
}

ModelApi* ModelClaim::model() const {
  const std::lock_guard lock(models_.mutex_);
  if (refusal_) throw Refusal(*refusal_);
  return model_;
}

Models::Models(ModelList list, const ApiOptions& options, const slm::CancelSource& cancel)
    : list_(std::move(list)),
      options_(options),
      cancelled_(cancel.get_token()),
      created_(static_cast<std::int64_t>(std::time(nullptr))) {
  for (const ModelSource& source : list_.sources) {
    Entry& entry = entries_.emplace_back();
    entry.source = source;
    try {
      entry.context = list_.outline(source).context;
    } catch (const slm::Error& error) {
      entry.failure = error;
    }
  }
  thread_ = slm::detail::start_thread([this] { run(); });
}

Models::~Models() { cancel(); }

void Models::cancel() {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Entry& entry : entries_) {
      for (ModelClaim* claim : entry.waiting) {
        claim->refusal_ = shutting_down();
        wakes.push_back(claim->wake_);
      }
      waiting_ -= entry.waiting.size();
      entry.waiting.clear();
    }
  }
  news_.notify_all();
  for (const auto& wake : wakes) wake();
}

std::unique_ptr<ModelClaim> Models::claim(const std::optional<std::string>& name, std::function<void()> wake) {
  Lock lock(mutex_);
  if (stopped_) throw shutting_down();
  Entry& entry = entries_[name ? index_of(*name) : 0];
  std::unique_ptr<ModelClaim> claim(new ModelClaim(*this, entry, std::move(wake)));
  if (entry.api != nullptr && !entry.closing && !entry.loading) {
    grant(entry, *claim);
    return claim;
  }
  if (waiting_ >= options_.most_waiting) {
    lock.unlock();  // the claim's destructor takes the mutex
    throw overloaded("engine.full", "overloaded", "Too many requests wait for models. Try again later.");
  }
  entry.waiting.push_back(claim.get());
  ++waiting_;
  if (!std::exchange(entry.loading, true)) queue_.push_back(&entry);
  lock.unlock();
  news_.notify_all();
  return claim;
}

void Models::grant(Entry& entry, ModelClaim& claim) {
  claim.model_ = entry.api.get();
  ++entry.uses;
  entry.last_use = ++clock_;
}

void Models::release(ModelClaim& claim) {
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = claim.entry_;
    if (claim.model_ != nullptr) {
      --entry.uses;
      entry.last_use = ++clock_;
    }
    waiting_ -= std::erase(entry.waiting, &claim);
  }
  news_.notify_all();
}

void Models::run() {
  Lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    Entry& entry = *queue_.front();
    queue_.pop_front();
    if (entry.waiting.empty()) {
      entry.loading = false;  // the clients have gone
    } else {
      load(entry, lock);
    }
  }
}

void Models::load(Entry& entry, Lock& lock) {
  if (entry.api != nullptr) return settle(entry, std::nullopt, lock);  // it had to close, but the need has gone
  lock.unlock();
  std::optional<slm::Error> failure;
  ModelOutline outline;
  const auto attempt = [&failure](const auto& action) {
    try {
      action();
    } catch (const slm::Error& error) {
      failure = error;
    } catch (const std::bad_alloc&) {
      failure = slm::Error("cli.out-of-memory", "the system has no memory for this model", "Lower --model-memory");
    } catch (const std::exception& error) {
      failure = slm::Error("serve.engine-fault", error.what(), "Restart the server");
    }
  };
  attempt([&] {
    outline = list_.outline(entry.source);
    check_budget(entry.source.name, outline.bytes, list_.budget);
  });
  lock.lock();
  if (!failure) {
    entry.context = outline.context;
    entry.bytes = outline.bytes;
    if (!make_room(entry, lock)) {
      entry.loading = false;
      return;
    }
    lock.unlock();
    std::shared_ptr<ModelApi> api;
    const auto is_over = [this] {
      const std::lock_guard stopping(mutex_);
      return stopped_;
    };
    attempt([&] { api = std::make_shared<ModelApi>(list_.load(entry.source, is_over), options_, cancelled_); });
    lock.lock();
    entry.api = std::move(api);
  }
  ++(failure ? entry.failures : entry.loads);
  settle(entry, failure, lock);
}

void Models::settle(Entry& entry, const std::optional<slm::Error>& failure, Lock& lock) {
  Wakes wakes;
  entry.failure = failure;
  entry.loading = false;
  for (ModelClaim* claim : entry.waiting) {
    if (failure) {
      claim->refusal_ = failed_load(*failure, entry.source);
    } else {
      grant(entry, *claim);
    }
    wakes.push_back(claim->wake_);
  }
  waiting_ -= entry.waiting.size();
  entry.waiting.clear();
  lock.unlock();
  for (const auto& wake : wakes) wake();
  lock.lock();
}

bool Models::make_room(Entry& entry, Lock& lock) {
  bool has_room = false;
  while (!has_room && !stopped_ && !entry.waiting.empty()) {
    std::uint64_t used = entry.bytes;
    std::vector<Entry*> others;
    for (Entry& other : entries_) {
      other.closing = false;
      if (other.api == nullptr) continue;
      used += other.bytes;
      others.push_back(&other);
    }
    std::sort(others.begin(), others.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->uses > 0, a->last_use) < std::pair(b->uses > 0, b->last_use);
    });
    Entry* idle = nullptr;
    for (Entry* other : others) {
      if (used <= list_.budget) break;
      used -= other->bytes;
      other->closing = true;
      if (idle == nullptr && other->uses == 0) idle = other;
    }
    has_room = std::none_of(others.begin(), others.end(), [](const Entry* other) { return other->closing; });
    if (idle != nullptr) {
      unload(*idle, lock);
    } else if (!has_room) {
      news_.wait(lock);
    }
  }
  for (Entry& other : entries_) other.closing = false;
  return has_room;
}

void Models::unload(Entry& entry, Lock& lock) {
  std::shared_ptr<ModelApi> api = std::exchange(entry.api, nullptr);
  ++entry.evictions;
  lock.unlock();
  api.reset();
  lock.lock();
}

std::size_t Models::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].source.name == name) return i;
  }
  if (list_.any_name) return 0;
  throw unknown_model(name);
}

OrderedJson Models::card(const Entry& entry) const {
  OrderedJson status{{"value", entry.api != nullptr ? "loaded"
                               : entry.loading      ? "loading"
                               : entry.failure      ? "failed"
                                                    : "unloaded"}};
  if (status["value"] == "failed") status["error"] = told(*entry.failure, entry.source);
  return {{"id", entry.source.name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "slm"},
          {"root", entry.source.path},
          {"parent", nullptr},
          {"max_model_len", entry.context ? OrderedJson(*entry.context) : OrderedJson()},
          {"status", std::move(status)}};
}

OrderedJson Models::cards() const {
  const std::lock_guard lock(mutex_);
  OrderedJson list = OrderedJson::array();
  for (const Entry& entry : entries_) list.push_back(card(entry));
  return list;
}

OrderedJson Models::card_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return card(entries_[index_of(name)]);
}

std::vector<std::pair<std::string, std::shared_ptr<ModelApi>>> Models::loaded() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::shared_ptr<ModelApi>>> list;
  for (const Entry& entry : entries_) {
    if (entry.api != nullptr) list.emplace_back(entry.source.name, entry.api);
  }
  return list;
}

std::string Models::fault() const {
  for (const auto& [name, api] : loaded()) {
    if (std::string fault = api->fault(); !fault.empty()) return fault;
  }
  return {};
}

std::size_t Models::load() const {
  std::size_t requests = 0;
  for (const slm::EngineStats& one : stats()) requests += one.waiting + one.running;
  const std::lock_guard lock(mutex_);
  return requests + waiting_;
}

std::vector<slm::EngineStats> Models::stats() const {
  std::vector<slm::EngineStats> all;
  for (const auto& [name, api] : loaded()) all.push_back(api->stats());
  return all;
}

void Models::add_metrics(MetricsPage& page) const {
  for (const auto& [name, api] : loaded()) {
    page.label(name);
    api->add_metrics(page);
  }
  const std::lock_guard lock(mutex_);
  const auto real = [](auto count) { return static_cast<double>(count); };
  for (const Entry& entry : entries_) {
    page.label(entry.source.name);
    page.gauge("slm:model_loaded", "Whether the model is loaded.", entry.api != nullptr ? 1 : 0);
    page.gauge("slm:model_bytes", "Estimated memory of the loaded model with its KV cache.",
               entry.api != nullptr ? real(entry.bytes) : 0);
    page.gauge("slm:model_requests_waiting", "Requests that wait for the model.", real(entry.waiting.size()));
    page.counter("slm:model_loads", "Loads of the model.", real(entry.loads));
    page.counter("slm:model_failures", "Failed loads of the model.", real(entry.failures));
    page.counter("slm:model_evictions", "Unloads of the model for the memory of another one.", real(entry.evictions));
  }
  page.label({});
  page.gauge("slm:model_budget_bytes", "Memory of all models.", real(list_.budget));
}

}  // namespace serve
