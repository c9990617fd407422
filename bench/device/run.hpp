// Measures one table on a target: the common path of all backends.
#pragma once

#include <vector>

#include "bench/device/decode.hpp"
#include "bench/device/kernels.hpp"
#if defined(SLM_BENCH_CUBLAS) && defined(__CUDACC__)
#include "bench/device/blas.hpp"
#endif

namespace slm::bench {

template <class Target>
Report run_on(Target& target, const MeasureOptions& options) {
  Harness harness(target.description(), options.keep);
  const std::vector<Subject> all = subjects(options, target.formats(), Target::emulated);
  if (options.table == MeasureOptions::Table::kernels) {
    KernelTable<Target> table(target, harness, options);
    for (const Subject& subject : all) table.add(subject);
    return harness.run();
  }
  DecodeTable<Target> table(target, harness, options);
  for (const Subject& subject : all) table.add(subject);
#if defined(SLM_BENCH_CUBLAS) && defined(__CUDACC__)
  BlasTable<Target> blas(target, harness);
  for (const Subject& subject : all) {
    if (options.sequences.empty() && subject.dense()) blas.add(subject);
  }
#endif
  return harness.run();
}

}  // namespace slm::bench
