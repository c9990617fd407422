// Devices to plan for, with their makers' figures. None of them is measured here.
#pragma once

#include <array>
#include <string_view>

namespace slm::bench::plan {

/// SI units. Rates are dense, links count one direction. A device is what programs see: a card with two dies is two
/// devices.
struct PlanDevice {
  std::string_view name;
  double memory = 0;      // bytes
  double bandwidth = 0;   // bytes per second of the memory
  double arithmetic = 0;  // operations per second: bf16 products of a GPU, float products of a CPU
  double latency = 0;     // seconds of a gather of few bytes
  double link = 0;        // bytes per second from one other device
  double launch = 0;      // seconds between two operations of a step
  double share = 0;       // reached share of the memory's and the arithmetic's rate
  std::string_view origin = {};
  bool processor = false;
};

/// share: engines that publish tokens/s of 7B models reach 55 to 75 % of the data sheet's bandwidth for one sequence
/// (gpt-fast 63 % on a die of MI250X, llama.cpp 57 to 71 % on 7900 XTX, muiLLM 64 % on MI300X, CUDA graphs 65 % on
/// H200). latency: reports of RCCL and NCCL within a node, 17 to 25 us for small messages. launch: nodes of a replayed
/// graph, 1.3 to 2.2 us with CUDA and 3.85 us with HIP.
inline constexpr std::array stated_devices = {
    PlanDevice{"MI250", 64e9, 1.638e12, 181e12, 20e-6, 50e9, 4e-6, 0.6,
               "data sheet, one of a card's two dies: 128 GB, 3.2768 TB/s, 362.1 TFLOP/s; an xGMI link of 50 GB/s"},
    PlanDevice{"MI300X", 192e9, 5.3e12, 1307e12, 20e-6, 64e9, 4e-6, 0.6,
               "data sheet: 192 GB, 5.3 TB/s, 1307.4 TFLOP/s; an xGMI link of 64 GB/s to each other card"},
    PlanDevice{"7900XTX", 24e9, 0.96e12, 123e12, 20e-6, 32e9, 4e-6, 0.6,
               "data sheet: 24 GB, 960 GB/s, 122.8 TFLOP/s; PCIe 4.0 x16 of 32 GB/s"},
    PlanDevice{"H100", 80e9, 3.35e12, 989e12, 20e-6, 450e9, 2e-6, 0.6,
               "data sheet, SXM: 80 GB, 3.35 TB/s, 989 TFLOP/s; NVLink of 900 GB/s, both directions"},
    PlanDevice{"H200", 141e9, 4.8e12, 989e12, 20e-6, 450e9, 2e-6, 0.6,
               "data sheet, SXM: 141 GB, 4.8 TB/s, 989 TFLOP/s; NVLink of 900 GB/s, both directions"},
};

/// Defaults for the CPU. share: the part of its probe that bench decode reaches (docs/performance.md: 66 to 90 %).
/// latency and link: assumed values for unmeasured messages.
inline constexpr PlanDevice processor = {.name = "measured",
                                         .latency = 20e-6,
                                         .link = 5e9,
                                         .launch = 1e-6,
                                         .share = 0.8,
                                         .origin = "probes of this CPU",
                                         .processor = true};

}  // namespace slm::bench::plan
