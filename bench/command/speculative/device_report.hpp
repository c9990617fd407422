// The speeds of a run in the common report schema, for slm bench compare.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bench/command/cpu_device.hpp"
#include "bench/command/report.hpp"
#include "bench/device/measure.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "tools/cli/gpu.hpp"

namespace slm::bench::speculative {

/// Empty for a GPU if the program was built without its device description.
inline std::optional<Device> device_of(const std::string& backend, int threads, backend::Isa isa) {
  if (backend.starts_with("gpu")) {
#if defined(SLM_BENCH_DEVICE)
    MeasureOptions options;
    options.device = cli::number_of_gpu(backend);
    return this_device(options);
#else
    return std::nullopt;
#endif
  }
  Device device = cpu_device(threads, isa);
  device.backend = backend;
  return device;
}

/// One result per configuration of slm. pair: "target + draft". seconds: per new token.
inline Report device_report(const Json& summary, const std::string& pair, const std::string& format, Device device) {
  Report report = make_report(std::move(device));
  for (const Json& found : summary["configurations"]) {
    const double tokens = found["new_tokens"]["speculative"], total = found["seconds"]["speculative"]["total"];
    if (found["engine"] != "slm" || !found["speedup"].is_object() || tokens <= 0 || total <= 0) continue;
    Result result{.benchmark = "speculative", .model = pair, .format = format, .seconds = total / tokens};
    result.numbers = {{"speedup", found["speedup"]["median"]},
                      {"tokens_per_second", found["tokens_per_second"]["speculative"]["median"]},
                      {"plain_tokens_per_second", found["tokens_per_second"]["plain"]["median"]},
                      {"acceptance", found["acceptance"]},
                      {"tokens_per_target_step", found["tokens_per_target_step"]}};
    report.results.push_back(std::move(result));
  }
  return report;
}

}  // namespace slm::bench::speculative
