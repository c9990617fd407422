#include "api/metrics.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "slm/core/error.hpp"

namespace serve {

namespace {

std::string number(double value) { return nlohmann::json(value).dump(); }

/// Lists at most a hundred names.
std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 100); ++i) list += (i > 0 ? "," : "") + names[i];
  return list;
}

/// How many adapters of the present average size the highest tier can hold.
std::size_t adapter_limit(const slm::AdapterStoreStats& stats) {
  const slm::AdapterTierStats& tier = stats.device.adapters > 0 ? stats.device : stats.host;
  if (tier.budget == 0 || tier.bytes == 0 || tier.adapters == 0) return stats.disk.adapters;
  return std::min(stats.disk.adapters, static_cast<std::size_t>(tier.budget / (tier.bytes / tier.adapters)));
}

}  // namespace

void MetricsPage::label(std::string_view model) {
  labels_.clear();
  if (model.empty()) return;
  labels_ = "engine=\"0\",model_name=\"";
  for (const char byte : model) {
    if (byte == '\\' || byte == '"') labels_ += '\\';
    labels_ += byte == '\n' ? ' ' : byte;
  }
  labels_ += '"';
}

std::string MetricsPage::text() const {
  std::string page;
  for (const Metric& metric : metrics_) page += metric.text;
  return page;
}

void MetricsPage::head(std::string_view name, std::string_view help, std::string_view kind) {
  const auto found =
      std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& metric) { return metric.name == name; });
  metric_ = static_cast<std::size_t>(found - metrics_.begin());
  if (found != metrics_.end()) return;
  metrics_.push_back({std::string{name}, slm::text("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")});
}

void MetricsPage::sample(std::string_view name, std::string_view labels, double value) {
  const std::string all = slm::text(labels_, labels_.empty() || labels.empty() ? "" : ",", labels);
  const std::string braced = all.empty() ? "" : slm::text("{", all, "}");
  metrics_[metric_].text += slm::text(name, braced, " ", number(value), "\n");
}

void MetricsPage::gauge(std::string_view name, std::string_view help, double value, std::string_view labels) {
  head(name, help, "gauge");
  sample(name, labels, value);
}

void MetricsPage::gauge(std::string_view name, std::string_view help, std::string_view label,
                        const std::vector<std::pair<std::string, double>>& values) {
  head(name, help, "gauge");
  for (const auto& one : values) sample(name, slm::text(label, "=\"", one.first, "\""), one.second);
}

void MetricsPage::counter(std::string_view name, std::string_view help, double value) {
  const std::string total = slm::text(name, "_total");
  head(total, help, "counter");
  sample(total, {}, value);
}

void MetricsPage::counter(std::string_view name, std::string_view help, std::string_view label,
                          const std::vector<std::pair<std::string, double>>& values) {
  const std::string total = slm::text(name, "_total");
  head(total, help, "counter");
  for (const auto& one : values) sample(total, slm::text(label, "=\"", one.first, "\""), one.second);
}

void MetricsPage::histogram(std::string_view name, std::string_view help, const slm::Histogram& histogram) {
  head(name, help, "histogram");
  const std::string bucket = slm::text(name, "_bucket");
  std::int64_t below = 0;
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    below += histogram.counts[i];
    sample(bucket, slm::text("le=\"", number(histogram.bounds[i]), "\""), static_cast<double>(below));
  }
  sample(bucket, "le=\"+Inf\"", static_cast<double>(histogram.count));
  sample(slm::text(name, "_sum"), {}, histogram.sum);
  sample(slm::text(name, "_count"), {}, static_cast<double>(histogram.count));
}

void MetricsPage::add(const slm::EngineStats& stats) {
  const auto real = [](auto count) { return static_cast<double>(count); };
  const auto ended = [&](slm::FinishReason reason) {
    return real(stats.finished_by[static_cast<std::size_t>(reason)]);
  };
  using slm::FinishReason;

  gauge("vllm:num_requests_running", "Running requests.", real(stats.running));
  gauge("vllm:num_requests_waiting", "Queued requests.", real(stats.waiting));
  gauge("vllm:num_requests_waiting_by_reason", "Queued requests by reason: capacity, or an adapter that is loading.",
        "reason",
        {{"capacity", real(stats.waiting - std::min(stats.waiting, stats.deferred))},
         {"deferred", real(stats.deferred)}});
  if (stats.cache_memory > 0) {
    gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use; 1 is all.",
          real(stats.cache_used - stats.cache_idle) / real(stats.cache_memory));
  }
  if (stats.cache_memory > 0 && stats.page_bytes > 0) {
    gauge("vllm:cache_config_info", "Pages of the KV cache.", 1,
          slm::text("block_size=\"", slm::page_positions, "\",num_gpu_blocks=\"", stats.cache_memory / stats.page_bytes,
                    "\""));
  }
  gauge("slm:kv_cache_bytes", "Bytes of the KV cache in use.", real(stats.cache_used));

  counter("vllm:prompt_tokens", "Prompt tokens computed or found in the cache.", real(stats.prompt_tokens));
  counter("vllm:generation_tokens", "Generated tokens.", real(stats.generation_tokens));
  counter("vllm:num_preemptions", "Preemptions of requests, whose KV cache is recomputed later.",
          real(stats.preemptions));
  counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.",
          real(stats.prefixes.queried_positions()));
  counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache.", real(stats.prefixes.hit_positions()));
  counter("vllm:request_success", "Completed requests.", "finished_reason",
          {{"stop", ended(FinishReason::end_token) + ended(FinishReason::stop_token) + ended(FinishReason::sink) +
                        ended(FinishReason::complete)},
           {"length", ended(FinishReason::length) + ended(FinishReason::context)},
           {"abort", ended(FinishReason::cancelled) + ended(FinishReason::deadline)},
           {"error", ended(FinishReason::error)}});
  counter("vllm:admission_rejections", "Refused requests.", "reason", {{"queue_full", real(stats.refused)}});
  counter("vllm:spec_decode_num_drafts", "Verified drafts.", real(stats.drafts));
  counter("vllm:spec_decode_num_draft_tokens", "Drafted tokens.", real(stats.drafted));
  counter("vllm:spec_decode_num_accepted_tokens", "Accepted drafted tokens.", real(stats.accepted));
  std::vector<std::pair<std::string, double>> at_depth;
  for (std::size_t i = 0; i < stats.accepted_at_depth.size(); ++i) {
    at_depth.emplace_back(std::to_string(i), real(stats.accepted_at_depth[i]));
  }
  counter("vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted drafted tokens by position in the draft.",
          "position", at_depth);
  counter("slm:draft_faults", "Requests that continued without a draft after its failure.", real(stats.draft_faults));
  counter("slm:steps", "Steps of the model.", real(stats.steps));

  histogram("vllm:time_to_first_token_seconds", "Time from a request to its first token.", stats.first_token_seconds);
  histogram("vllm:inter_token_latency_seconds", "Time between tokens.", stats.token_seconds);
  histogram("vllm:request_time_per_output_token_seconds", "Mean time per token of a request.", stats.seconds_per_token);
  histogram("vllm:e2e_request_latency_seconds", "Time from a request to its end.", stats.request_seconds);
  histogram("vllm:request_queue_time_seconds", "Time from a request to its first step.", stats.queue_seconds);
  histogram("vllm:request_prefill_time_seconds", "Time from the first step to the first token.", stats.prefill_seconds);
  histogram("vllm:request_decode_time_seconds", "Time from the first token to the last.", stats.decode_seconds);
  histogram("vllm:request_inference_time_seconds", "Time from the first step to the end.", stats.inference_seconds);
  histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", stats.request_prompt_tokens);
  histogram("vllm:request_generation_tokens", "Generated tokens per request.", stats.request_generation_tokens);
  histogram("vllm:request_num_preemptions", "Preemptions per request.", stats.request_preemptions);
  histogram("vllm:iteration_tokens_total", "Tokens per step.", stats.step_tokens);
  histogram("slm:step_seconds", "Time per step.", stats.step_seconds);
}

void MetricsPage::add_llama(const std::vector<slm::EngineStats>& models) {
  labels_.clear();
  const auto sum = [&models](auto value) {
    double all = 0;
    for (const slm::EngineStats& stats : models) all += static_cast<double>(value(stats));
    return all;
  };
  using Stats = const slm::EngineStats&;
  const double cached = sum([](Stats stats) { return stats.prefixes.hit_positions(); });
  const double prompt = sum([](Stats stats) { return stats.prompt_tokens; }) - cached;
  const double prompt_seconds = sum([](Stats stats) { return stats.prefill_seconds.sum; });
  const double predicted = sum([](Stats stats) { return stats.generation_tokens; });
  const double predicted_seconds = sum([](Stats stats) { return stats.decode_seconds.sum; });
  counter("llamacpp:prompt_tokens", "Computed prompt tokens.", prompt);
  counter("llamacpp:prompt_tokens_cached", "Prompt tokens found in the cache.", cached);
  counter("llamacpp:prompt_seconds", "Time of prompts.", prompt_seconds);
  counter("llamacpp:tokens_predicted", "Generated tokens.", predicted);
  counter("llamacpp:tokens_predicted_seconds", "Time of generated tokens after the first ones.", predicted_seconds);
  counter("llamacpp:n_decode", "Steps of the model.", sum([](Stats stats) { return stats.steps; }));
  counter("llamacpp:spec_decode_num_drafts", "Verified drafts.", sum([](Stats stats) { return stats.drafts; }));
  counter("llamacpp:spec_decode_num_draft_tokens", "Drafted tokens.", sum([](Stats stats) { return stats.drafted; }));
  counter("llamacpp:spec_decode_num_accepted_tokens", "Accepted drafted tokens.",
          sum([](Stats stats) { return stats.accepted; }));
  head("llamacpp:n_tokens_max", "Tokens of the longest prompt and answer so far.", "counter");  // named without _total
  std::int64_t longest = 0;
  for (const slm::EngineStats& stats : models) longest = std::max(longest, stats.longest_text);
  sample("llamacpp:n_tokens_max", {}, static_cast<double>(longest));
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; };
  gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second.", rate(prompt, prompt_seconds));
  gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second.", rate(predicted, predicted_seconds));
  gauge("llamacpp:n_busy_slots_per_decode", "Mean number of requests per step of the model.",
        rate(sum([](Stats stats) { return stats.step_requests; }), sum([](Stats stats) { return stats.steps; })));
  gauge("llamacpp:requests_processing", "Running requests.", sum([](Stats stats) { return stats.running; }));
  gauge("llamacpp:requests_deferred", "Queued requests.", sum([](Stats stats) { return stats.waiting; }));
}

void MetricsPage::add(const slm::AdapterStoreStats& stats) {
  const auto real = [](auto count) { return static_cast<double>(count); };
  gauge("vllm:lora_requests_info", "Adapters in use and loading; the value is the Unix time.", real(std::time(nullptr)),
        slm::text("max_lora=\"", adapter_limit(stats), "\",running_lora_adapters=\"", list_of(stats.in_use),
                  "\",waiting_lora_adapters=\"", list_of(stats.awaited), "\""));
  gauge("slm:adapters_resident", "Adapters in a tier.", "tier",
        {{"device", real(stats.device.adapters)},
         {"host", real(stats.host.adapters)},
         {"disk", real(stats.disk.adapters)}});
  gauge("slm:adapter_bytes", "Bytes of adapters in a tier.", "tier",
        {{"device", real(stats.device.bytes)}, {"host", real(stats.host.bytes)}, {"disk", real(stats.disk.bytes)}});
  gauge("slm:adapter_budget_bytes", "Budget of a tier in bytes; 0: no limit.", "tier",
        {{"device", real(stats.device.budget)}, {"host", real(stats.host.budget)}, {"disk", real(stats.disk.budget)}});
  counter("slm:adapter_loads", "Adapters loaded from a tier.", "from",
          {{"host", real(stats.device.loads)}, {"disk", real(stats.host.loads)}});
  counter("slm:adapter_evictions", "Adapters evicted from a tier.", "tier",
          {{"device", real(stats.device.evictions)}, {"host", real(stats.host.evictions)}});
  counter("slm:adapter_hits", "Requests whose adapter was loaded.", real(stats.hits));
  counter("slm:adapter_misses", "Requests whose adapter was not loaded.", real(stats.misses));
  counter("slm:adapter_failures", "Failed loads of adapters.", real(stats.failures));
  histogram("slm:adapter_load_seconds", "Time to load an adapter.", stats.load_seconds);
}

}  // namespace serve
