// A view of constant elements does not become a view of mutable ones.
// expect: View<const float, 2>
#include "slm/core/view.hpp"

void write(slm::View<float, 2>);

void caller(const float* values) {
#ifdef SLM_FIXED
  float copy = *values;
  write({&copy, 1, 1});
#else
  write(slm::View<const float, 2>{values, 1, 1});
#endif
}
