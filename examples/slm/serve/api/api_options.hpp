// ApiOptions: what the server's routes have in common.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "api/metrics.hpp"
#include "api/text_request.hpp"

namespace serve {

struct ApiOptions {
  std::vector<std::string> keys = {};  // accepted API keys; empty: no key required
  ReadingOptions reading = {};
  std::size_t most_running = 64;                       // texts of a model at a time
  std::size_t most_waiting = 12800;                    // requests that wait for models
  std::vector<std::string> tags = {};                  // of the model in llama.cpp's /models
  std::filesystem::path slot_folder = {};              // files of saved slots; empty: slots are not saved
  bool page = true;                                    // whether / is the web page
  bool slots = true, metrics = true;                   // whether /slots and /metrics answer
  bool load_adapters = false;                          // whether clients may load and unload adapters
  std::function<void(MetricsPage&)> add_metrics = {};  // adds metrics of other components
};

}  // namespace serve
