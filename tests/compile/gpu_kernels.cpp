// Every kernel, once for each key of backend/gpu/weights/keys.hpp: all kernels of a GPU program. The check of code
// objects compiles it for all architectures. Kernels whose names begin with Product or Attend must contain matrix
// instructions.
#include "slm/backend/gpu/kernels/attend.hpp"
#include "slm/backend/gpu/kernels/choice.hpp"
#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/expert_product.hpp"
#include "slm/backend/gpu/kernels/experts.hpp"
#include "slm/backend/gpu/kernels/heads.hpp"
#include "slm/backend/gpu/kernels/low_rank.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/recurrence.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/kernels/shares.hpp"
#include "slm/backend/gpu/kernels/streams.hpp"
#include "slm/backend/gpu/runtime/runtime_vendor.hpp"
#include "slm/backend/gpu/steps/step_program.hpp"

namespace slm::gpu {

template <class... Kernels>
int count_of() {
  static_assert((Kernel<Kernels> && ...));
  const void* const entries[] = {reinterpret_cast<const void*>(&entry<Kernels>)...};
  int count = 0;
  for (const void* const one : entries) count += one != nullptr;
  return count;
}

template <class Format>
int count_of_format() {
  return count_of<
      Embed<Format>, StageRows<Format>, ProductVectors<Format, AddToRows>, ProductVectors<Format, Activated>,
      ProductVectors<Format, Gated>, ProductVectors<Format, QueriesKeysValues>, ProductTiles<Format, AddToRows>,
      ProductTiles<Format, Activated>, ProductTiles<Format, Gated>, ProductTiles<Format, QueriesKeysValues>,
      ProductHeads<Format>, StageExperts<Format>, ProductExpertVectors<Format>, ProductExpertTiles<Format>>();
}

template <class Element>
int count_of_attention() {
  return count_of<Attend<64, 16, Element>, Attend<64, 32, Element>, Attend<128, 16, Element>, Attend<128, 32, Element>,
                  Attend<256, 16, Element>, AttendAdjusted<64, Element>, AttendAdjusted<128, Element>,
                  AttendAdjusted<256, Element>, AttendAdjusted<most_head_dim, Element>>();
}

int count_of_kernels() {
  return count_of_format<Fp32>() + count_of_format<Fp16>() + count_of_format<Bf16>() + count_of_format<Int4>() +
         count_of_format<Int8>() + count_of_attention<half_t>() + count_of_attention<bfloat16_t>() +
         count_of_attention<std::int8_t>() +
         count_of<Shrink, AdaptEmbedding, SelectRows, SplitHeads, ScaleRows, MultiplyRows, AddNormedRows, NormalizeRows,
                  GateRows, ShapeQkv, ShapeRotatedQkv, MatchRows, MixStreams, CorrectStreams, GateSomeRows, RouteRows,
                  ActivateExperts, AddExperts, Convolve, AdvanceDelta, AdvanceMamba, FinishMamba, GateBySigmoid,
                  TakeColumns, SpreadColumns, SpreadExperts, SpreadRows, Forbid, Peak, Cut, Race, PersistentStep<Fp16>,
                  PersistentStep<Bf16>, PersistentStep<Int4>, PersistentStep<Int8>, detail::ProbeKernel>();
}

}  // namespace slm::gpu
