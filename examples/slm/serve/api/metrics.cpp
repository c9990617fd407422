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

/// A hundred at most.
std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 100); ++i) list += (i > 0 ? "," : "") + names[i];
  return list;
}

/// How many adapters fit into the highest tier, if all are as large as those in it.
std::size_t room_for(const slm::AdapterStoreStats& stats) {
  const slm::AdapterTierStats& tier = stats.device.adapters > 0 ? stats.device : stats.host;
  if (tier.budget == 0 || tier.bytes == 0 || tier.adapters == 0) return stats.disk.adapters;
  return std::min(stats.disk.adapters, static_cast<std::size_t>(tier.budget / (tier.bytes / tier.adapters)));
}

}  // namespace

MetricsPage::MetricsPage(std::string_view model) : labels_("engine=\"0\",model_name=\"") {
  for (const char byte : model) {
    if (byte == '\\' || byte == '"') labels_ += '\\';
    labels_ += byte == '\n' ? ' ' : byte;
  }
  labels_ += '"';
}

void MetricsPage::head(std::string_view name, std::string_view help, std::string_view kind) {
  text_ += slm::text("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

void MetricsPage::sample(std::string_view name, std::string_view labels, double value) {
  text_ += slm::text(name, "{", labels_, labels.empty() ? "" : ",", labels, "} ", number(value), "\n");
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

  gauge("vllm:num_requests_running", "Texts that are being written.", real(stats.running));
  gauge("vllm:num_requests_waiting", "Requests that have not begun.", real(stats.waiting));
  gauge("vllm:num_requests_waiting_by_reason", "The same by what they wait for: a place, or their adapter.", "reason",
        {{"capacity", real(stats.waiting - std::min(stats.waiting, stats.deferred))},
         {"deferred", real(stats.deferred)}});
  if (stats.cache_memory > 0) {
    gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that texts hold; 1 is all.",
          real(stats.cache_used - stats.cache_idle) / real(stats.cache_memory));
  }
  if (stats.cache_memory > 0 && stats.page_bytes > 0) {
    gauge("vllm:cache_config_info", "Pages of the KV cache.", 1,
          slm::text("block_size=\"", slm::page_positions, "\",num_gpu_blocks=\"", stats.cache_memory / stats.page_bytes,
                    "\""));
  }
  gauge("slm:kv_cache_bytes", "Memory that keys and values take.", real(stats.cache_used));

  counter("vllm:prompt_tokens", "Tokens of prompts that were read, or found in the cache.", real(stats.prompt_tokens));
  counter("vllm:generation_tokens", "Tokens that were generated.", real(stats.generation_tokens));
  counter("vllm:num_preemptions", "Times that a text made way for others, to be read again.", real(stats.preemptions));
  counter("vllm:prefix_cache_queries", "Tokens that were looked for in the prefix cache.",
          real(stats.prefixes.queried_positions()));
  counter("vllm:prefix_cache_hits", "Tokens that were found in the prefix cache.",
          real(stats.prefixes.hit_positions()));
  counter("vllm:request_success", "Requests that are over.", "finished_reason",
          {{"stop", ended(FinishReason::end_token) + ended(FinishReason::stop_token) + ended(FinishReason::sink)},
           {"length", ended(FinishReason::length) + ended(FinishReason::context)},
           {"abort", ended(FinishReason::cancelled) + ended(FinishReason::deadline)},
           {"error", ended(FinishReason::error)}});
  counter("vllm:admission_rejections", "Requests that were refused.", "reason", {{"queue_full", real(stats.refused)}});
  counter("vllm:spec_decode_num_drafts", "Drafts that were verified.", real(stats.drafts));
  counter("vllm:spec_decode_num_draft_tokens", "Tokens that were drafted.", real(stats.drafted));
  counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.", real(stats.accepted));
  std::vector<std::pair<std::string, double>> at_depth;
  for (std::size_t i = 0; i < stats.accepted_at_depth.size(); ++i) {
    at_depth.emplace_back(std::to_string(i), real(stats.accepted_at_depth[i]));
  }
  counter("vllm:spec_decode_num_accepted_tokens_per_pos", "The same by their place in the draft.", "position",
          at_depth);
  counter("slm:draft_faults", "Requests that were answered without their draft, which had failed.",
          real(stats.draft_faults));
  counter("slm:steps", "Steps of the model.", real(stats.steps));

  histogram("vllm:time_to_first_token_seconds", "From a request to its first token.", stats.first_token_seconds);
  histogram("vllm:inter_token_latency_seconds", "From a token to the next.", stats.token_seconds);
  histogram("vllm:request_time_per_output_token_seconds", "Mean of a request.", stats.seconds_per_token);
  histogram("vllm:e2e_request_latency_seconds", "From a request to its end.", stats.request_seconds);
  histogram("vllm:request_queue_time_seconds", "Until it began.", stats.queue_seconds);
  histogram("vllm:request_prefill_time_seconds", "From there to the first token.", stats.prefill_seconds);
  histogram("vllm:request_decode_time_seconds", "From the first token to the last.", stats.decode_seconds);
  histogram("vllm:request_inference_time_seconds", "From its beginning to its end.", stats.inference_seconds);
  histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", stats.request_prompt_tokens);
  histogram("vllm:request_generation_tokens", "Tokens of an answer.", stats.request_generation_tokens);
  histogram("vllm:request_num_preemptions", "Times that a request made way.", stats.request_preemptions);
  histogram("vllm:iteration_tokens_total", "Tokens of a step.", stats.step_tokens);
  histogram("slm:step_seconds", "Time of a step.", stats.step_seconds);
}

void MetricsPage::add(const slm::AdapterStoreStats& stats) {
  const auto real = [](auto count) { return static_cast<double>(count); };
  gauge("vllm:lora_requests_info", "Adapters that texts use and wait for; the value is the Unix time.",
        real(std::time(nullptr)),
        slm::text("max_lora=\"", room_for(stats), "\",running_lora_adapters=\"", list_of(stats.in_use),
                  "\",waiting_lora_adapters=\"", list_of(stats.awaited), "\""));
  gauge("slm:adapters_resident", "Adapters that a tier holds.", "tier",
        {{"device", real(stats.device.adapters)},
         {"host", real(stats.host.adapters)},
         {"disk", real(stats.disk.adapters)}});
  gauge("slm:adapter_bytes", "Bytes that they take.", "tier",
        {{"device", real(stats.device.bytes)}, {"host", real(stats.host.bytes)}, {"disk", real(stats.disk.bytes)}});
  gauge("slm:adapter_budget_bytes", "Bytes that they may take; 0 is no limit.", "tier",
        {{"device", real(stats.device.budget)}, {"host", real(stats.host.budget)}, {"disk", real(stats.disk.budget)}});
  counter("slm:adapter_loads", "Adapters that were loaded from a tier.", "from",
          {{"host", real(stats.device.loads)}, {"disk", real(stats.host.loads)}});
  counter("slm:adapter_evictions", "Adapters that were evicted from a tier.", "tier",
          {{"device", real(stats.device.evictions)}, {"host", real(stats.host.evictions)}});
  counter("slm:adapter_hits", "Requests whose adapter was there.", real(stats.hits));
  counter("slm:adapter_misses", "Requests whose adapter was not.", real(stats.misses));
  counter("slm:adapter_failures", "Adapters that could not be loaded.", real(stats.failures));
  histogram("slm:adapter_load_seconds", "Time to load one.", stats.load_seconds);
}

}  // namespace serve
