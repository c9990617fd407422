// The server's metrics in Prometheus format, with the names of vLLM and llama.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/engine/adapter_options.hpp"
#include "slm/engine/stats.hpp"

namespace serve {

// Buckets for requested values.
inline constexpr double asked_n_bounds[] = {1, 2, 5, 10, 20, 50, 100};
inline constexpr double asked_tokens_bounds[] = {1,   2,    5,    10,   20,    50,    100,  200,
                                                 500, 1000, 2000, 5000, 10000, 20000, 50000};

/// A page of /metrics. The samples of a metric follow each other, whatever the order of the calls is.
class MetricsPage {
 public:
  /// The model whose labels the following samples have; empty: they have none.
  void label(std::string_view model);

  /// labels: additional ones, as name="value".
  void gauge(std::string_view name, std::string_view help, double value, std::string_view labels = {});
  void gauge(std::string_view name, std::string_view help, std::string_view label,
             const std::vector<std::pair<std::string, double>>& values);
  void counter(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help, std::string_view label,
               const std::vector<std::pair<std::string, double>>& values);
  void histogram(std::string_view name, std::string_view help, const slm::Histogram& histogram);
  void add(const slm::EngineStats& stats);
  void add(const slm::AdapterStoreStats& stats);
  /// The sums of all models, with llama.cpp's names and without labels.
  void add_llama(const std::vector<slm::EngineStats>& models);

  std::string text() const;

 private:
  void head(std::string_view name, std::string_view help, std::string_view kind);
  void sample(std::string_view name, std::string_view labels, double value);

  struct Metric {
    std::string name, text;  // its head and its samples
  };

  std::string labels_;
  std::vector<Metric> metrics_;
  std::size_t metric_ = 0;  // the number of the one that samples are added to
};

}  // namespace serve
