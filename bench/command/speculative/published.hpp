// AMD's published results of AMD-Llama-135m-code as draft of CodeLlama-7b on HumanEval: the table of the model card of
// amd/AMD-Llama-135m-code. Its pass@1 is of one run; one task is 0.61 points.
#pragma once

#include <array>
#include <string_view>

namespace slm::bench::speculative {

struct Published {
  std::string_view device;    // the target's device, and the draft's where it differs
  std::string_view sampling;  // greedy, sampled
  double plain_pass_at_1;     // percent
  double speculative_pass_at_1;
  double acceptance;
  double speedup;
};

inline constexpr std::array published = {
    Published{"FP32 MI250", "sampled", 32.31, 29.27, 0.650355, 2.58},
    Published{"FP32 MI250", "greedy", 31.10, 31.10, 0.657839, 2.80},
    Published{"BF16 MI250", "sampled", 31.10, 31.10, 0.668822, 1.67},
    Published{"BF16 MI250", "greedy", 34.15, 33.54, 0.665497, 1.75},
    Published{"INT4 NPU, BF16 CPU", "sampled", 28.05, 30.49, 0.722913, 2.83},
    Published{"INT4 NPU, BF16 CPU", "greedy", 28.66, 28.66, 0.738072, 2.98},
    Published{"BF16 CPU", "sampled", 31.10, 31.71, 0.723971, 3.68},
    Published{"BF16 CPU", "greedy", 33.54, 33.54, 0.727548, 3.88},
    Published{"FP32 CPU", "sampled", 29.87, 28.05, 0.727214, 3.57},
    Published{"FP32 CPU", "greedy", 31.10, 31.10, 0.738641, 3.66},
};

}  // namespace slm::bench::speculative
